// tests/cpp/test_program.cc: programs as bytes from any source.
#include <random>

#include "core/base/error.h"
#include "core/program/hazards.h"
#include "core/program/program.h"
#include "program_bytes.h"
#include "test.h"

namespace jge::test {

HOST_TEST(program_decodes_and_records_its_edges) {
  const std::string image = test_image(driver);
  const auto program =
      Program::decode(AffineProgram(image, 2, 10).add(0, 1, 2).add(1, 1, 2).add(0, 3, 4).bytes());
  EXPECT_EQ(program->name, "test program");
  EXPECT_EQ(program->nodes.size(), 3u);
  EXPECT_EQ(program->kernels.size(), 1u);
  EXPECT(program->dependencies(0).empty());
  EXPECT(program->dependencies(1).empty());
  EXPECT_EQ(program->dependencies(2).size(), 1u);
  EXPECT_EQ(program->dependencies(2)[0], 0u);
  EXPECT(program->images[0]->view() == image);
}

HOST_TEST(program_orders_memory_nodes) {
  const auto program = Program::decode(AffineProgram(test_image(driver), 2, 10)
                                           .scratch()
                                           .memset(2, 4, 0, 0, 40)   // 0
                                           .add(2, 1, 2)             // 1: after the fill
                                           .memcpy(2, 0, 0, 0, 40)   // 2: after its source
                                           .memset(2, 1, 7, 20, 20)  // 3: over what 2 has read
                                           .memcpy(1, 0, 1, 20, 20)  // 4: on its own
                                           .memset(1, 2, 1, 0, 4)    // 5: over what 4 has read
                                           .memcpy(2, 0, 1, 20, 20)  // 6: over what 4 wrote
                                           .memcpy(0, 0, 0, 36, 4)   // 7: reads what 2 wrote
                                           .bytes());
  EXPECT(!program->results[0].scratch);
  EXPECT(program->results[2].scratch);
  using Edges = std::vector<std::uint32_t>;
  const std::vector<Edges> expected = {{}, {0}, {1}, {2}, {}, {4}, {1, 4}, {2}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto on = program->dependencies(i);
    EXPECT(Edges(on.begin(), on.end()) == expected[i]);
  }
}

HOST_TEST(program_tells_what_its_edges_come_from) {
  using enum Hazard;
  const auto program = Program::decode(AffineProgram(test_image(driver), 2, 10)
                                           .memset(0, 4, 0, 0, 40)  // 0
                                           .add(0, 1, 2)            // 1: updates what 0 wrote
                                           .memcpy(0, 8, 1, 0, 8)   // 2: reads what 1 wrote
                                           .memset(0, 4, 0, 0, 40)  // 3: over 1, implied, and 2
                                           .bytes());
  using Conflicts = std::vector<Conflict>;
  const std::vector<Conflicts> expected = {
      {},
      {{0, 0, read_after_write, 0, 40}},
      {{1, 0, read_after_write, 8, 16}},
      {{2, 0, write_after_read, 8, 16}},
  };
  EXPECT(program->conflicts() == expected);
}

HOST_TEST(program_is_cut_at_whole_levels) {
  AffineProgram bytes(test_image(driver), 3, 10);
  for (std::uint32_t step = 0; step < 3; ++step) bytes.add(0, 1, 2);
  bytes.add(1, 1, 2).add(2, 1, 2);  // 3 and 4, beside 0
  const auto program = Program::decode(bytes.bytes());
  using Groups = std::vector<std::vector<std::uint32_t>>;
  EXPECT((program->cut(1) == Groups{{0, 3, 4}, {1}, {2}}));
  EXPECT((program->cut(4) == Groups{{0, 3, 4, 1}, {2}}));
  EXPECT((program->cut(5) == Groups{{0, 3, 4, 1, 2}}));
}

HOST_TEST(program_shares_equal_images) {
  const std::string bytes = AffineProgram(test_image(driver), 1, 10).add(0, 1, 2).bytes();
  const auto first = Program::decode(bytes);
  const auto second = Program::decode(bytes);
  EXPECT(first->images[0] == second->images[0]);
}

HOST_TEST(program_says_what_is_wrong_with_it) {
  const std::string image = test_image(driver);
  const auto refuse = [](const std::string& bytes, const char* part) {
    EXPECT_THROW(Program::decode(bytes), Error, part);
  };
  const std::string good = AffineProgram(image, 1, 10).add(0, 1, 2).bytes();
  refuse("", "it ends early");
  refuse("nothing of the kind", "does not begin as one");
  refuse(good + "x", "bytes follow its end");
  std::string other = good;
  other[4] = 9;
  refuse(other, "its version is 9, this package reads 1 to 2");
  refuse(AffineProgram(image, 1, 10).add(1, 1, 2).bytes(), "a buffer that is not there");
  refuse(AffineProgram("not an image", 1, 10).add(0, 1, 2).bytes(), "it is no cubin");
  refuse(AffineProgram(image.substr(0, 40), 1, 10).add(0, 1, 2).bytes(), "past its end");
  refuse(AffineProgram(image.substr(0, image.size() / 2), 1, 10).add(0, 1, 2).bytes(),
         "past its end");
  refuse(AffineProgram(std::string("\x50\xed\x55\xba", 4) + std::string(20, '\0'), 1, 10).bytes(),
         "its fatbin header points past its end");
  refuse(AffineProgram(image, 1, 10).symbol("").add(0, 1, 2).bytes(), "no proper name");
  refuse(AffineProgram(image, 1, 10).shift_type(40000).add(0, 1, 2).bytes(), "impossible size");
}

HOST_TEST(program_says_what_is_wrong_with_memory_nodes) {
  // One argument of 40 bytes, and a node over it and these results.
  const auto refuse = [](const Writer& results, const Writer& node, const char* part) {
    Writer out;
    out.append("JGEP").u32(1).str("memory").u32(1).u64(40);
    out.append(results.bytes()).u32(0).u32(0).u32(1).append(node.bytes());
    EXPECT_THROW(Program::decode(out.bytes()), Error, part);
  };
  // Result 0 is argument 0, result 1 is other memory.
  Writer two;
  two.u32(2).u64(40).u32(1).u8(0).u64(40).u32(0).u8(0);
  const auto memset = [&](std::uint8_t element, std::uint32_t value, const Writer& to) {
    return Writer().u8(2).u8(element).u32(value).append(to.bytes());
  };
  const auto copy = [&](const Writer& from, const Writer& to) {
    return Writer().u8(3).append(from.bytes()).append(to.bytes());
  };
  const auto argument = [](std::uint64_t offset, std::uint64_t bytes) {
    return Writer().argument(0, offset, bytes);
  };
  const auto result = [](std::uint32_t i, std::uint64_t offset, std::uint64_t bytes) {
    return Writer().result(i, offset, bytes);
  };
  const std::uint64_t most = ~std::uint64_t{0};

  refuse(two, Writer().u8(4).append(std::string(50, '\0')), "a node is of an unknown kind");
  refuse(two, memset(0, 0, result(0, 0, 40)), "elements of 0 bytes");
  refuse(two, memset(3, 0, result(0, 0, 36)), "elements of 3 bytes");
  refuse(two, memset(8, 0, result(0, 0, 40)), "elements of 8 bytes");
  refuse(two, memset(1, 256, result(0, 0, 40)), "larger than its element");
  refuse(two, memset(2, 65536, result(0, 0, 40)), "larger than its element");
  refuse(two, memset(4, 0, result(0, 0, 0)), "whole elements");
  refuse(two, memset(4, 0, result(0, 0, 38)), "whole elements");
  refuse(two, memset(4, 0, result(0, 2, 36)), "whole elements");
  refuse(two, memset(2, 0, result(0, 1, 38)), "whole elements");
  refuse(two, memset(4, 0, result(0, 4, 40)), "past the end of a buffer");
  refuse(two, memset(4, 0, result(0, most - 3, 4)), "past the end of a buffer");
  refuse(two, memset(4, 0, result(0, 4, most - 3)), "past the end of a buffer");
  refuse(two, memset(4, 0, result(2, 0, 40)), "a buffer that is not there");
  refuse(two, memset(4, 0, Writer().argument(1, 0, 40)), "a buffer that is not there");
  refuse(two, memset(4, 0, argument(0, 40)), "writes to an argument");

  refuse(two, copy(argument(0, 40), argument(0, 40)), "writes to an argument");
  refuse(two, copy(argument(0, 40), result(1, 0, 36)), "differ in bytes");
  refuse(two, copy(argument(0, 0), result(1, 0, 0)), "or have none");
  refuse(two, copy(argument(0, 40), result(0, 0, 40)), "overlap");
  refuse(two, copy(argument(0, 20), result(0, 19, 20)), "overlap");
  refuse(two, copy(argument(19, 20), result(0, 0, 20)), "overlap");
  refuse(two, copy(result(1, 0, 1), result(1, 0, 1)), "overlap");
  refuse(two, copy(result(1, 0, 41), result(0, 0, 41)), "past the end of a buffer");
  refuse(two, copy(result(3, 0, 4), result(0, 0, 4)), "a buffer that is not there");
  refuse(two, copy(argument(0, 20), result(0, 20, 20)).u8(0), "bytes follow its end");

  const Writer good = memset(4, 0, result(0, 0, 40));
  refuse(Writer().u32(1).u64(40).u32(0).u8(2), good, "a result has unknown flags");
  refuse(Writer().u32(1).u64(40).u32(1).u8(1), good, "a scratch result aliases an argument");
  refuse(Writer().u32(2).u64(40).u32(0).u8(1).u64(8).u32(0).u8(1), good, "several scratch results");
}

// Little input that asks for much memory or time.
HOST_TEST(program_refuses_what_grows_without_bound) {
  const std::string image = ".version 8.0\n.target sm_80\n";
  AffineProgram many(image, 1, 10);
  for (std::uint32_t i = 0; i <= kMaxNodes; ++i) many.add(0, 1, 2);
  EXPECT_THROW(Program::decode(many.bytes()), Error, "it has 32769 nodes; at most 32768");

  // Half of the nodes write a byte each, half read all of them.
  const auto crowd = [] {
    Hazards hazards;
    for (std::uint64_t i = 0; i < 32768; ++i) {
      Access access{0, i, i + 1, false, true};
      if (i >= 16384) access = {0, 0, 16384, true, false};
      hazards.add({&access, 1});
    }
  };
  EXPECT_THROW(crowd(), Error, "their order takes more than");
}

// Truncated anywhere, and with bytes changed at random: refused or decoded, never a crash, and
// whatever is decoded stays within its own bounds.
HOST_TEST(program_survives_every_truncation_and_random_damage) {
  // A small image, so that most of the damage meets the program itself.
  const std::string image = ".version 8.0\n.target sm_80\n";
  const std::string good = AffineProgram(image, 3, 10)
                               .scratch()
                               .add(0, 1, 2)
                               .memset(3, 2, 5, 4, 8)
                               .add(2, 3, 4)
                               .memcpy(3, 0, 1, 20, 20)
                               .add(1, 5, 6)
                               .bytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(Program::decode(good.substr(0, size)), Error, "");
  }
  std::mt19937 random(11);
  int accepted = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string bytes = good;
    for (int changes = 1 + random() % 4; changes > 0; --changes) {
      const char interesting[] = {0, 1, 2, 3, 0x7f, -1, -128, 8};
      bytes[random() % bytes.size()] =
          random() % 2 ? interesting[random() % sizeof interesting] : char(random());
    }
    try {
      const auto program = Program::decode(bytes);
      ++accepted;
      for (std::size_t i = 0; i < program->nodes.size(); ++i) {
        for (std::uint32_t on : program->dependencies(i)) EXPECT(on < i);
        for (const Binding& binding : program->bindings(i)) {
          if (!binding.pointer()) {
            EXPECT(binding.offset + binding.bytes <= program->values.size());
            continue;
          }
          const std::size_t arguments = program->arguments.size();
          EXPECT(binding.buffer < arguments + program->results.size());
          const std::uint64_t size = binding.buffer < arguments
                                         ? program->arguments[binding.buffer]
                                         : program->results[binding.buffer - arguments].bytes;
          EXPECT(binding.offset <= size && binding.bytes <= size - binding.offset);
        }
      }
    } catch (const Error& error) {
      EXPECT(error.code() == Code::invalid_argument);
    }
  }
  EXPECT(accepted > 0);
}

}  // namespace jge::test
