// tests/cpp/test_hostile_programs.cc: damaged programs are refused or run, and never crash.
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "driver/host_driver.h"
#include "host_session.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

// One edit outside of [image, image + image_bytes), which it keeps whole.
void damage(std::string& bytes, std::size_t& image, std::size_t image_bytes, std::mt19937& random) {
  const std::size_t outside = bytes.size() - image_bytes;
  const auto place = [&] {
    const std::size_t at = random() % outside;
    return at < image ? at : at + image_bytes;
  };
  const auto word = [&]() -> std::uint32_t {
    constexpr std::uint32_t interesting[] = {0,          1,          2,      3,          7,    8,
                                             0x7fffffff, 0x80000000, 0xffff, 0xffffffff, 4096, 64};
    return random() % 3 ? interesting[random() % std::size(interesting)] : random();
  };
  const std::size_t at = place();
  // Not from before the image into it, nor past the end.
  const std::size_t most = at < image ? image - at : bytes.size() - at;
  const std::size_t length = std::min<std::size_t>(most, 1 + random() % 40);
  const std::string piece = bytes.substr(at, length);
  switch (random() % 7) {
    case 0:
      bytes[at] = char(random());
      return;
    case 1:
      bytes[at] ^= char(1 << random() % 8);
      return;
    case 2: {
      const std::uint32_t value = word();
      bytes.replace(at, std::min<std::size_t>(4, most), reinterpret_cast<const char*>(&value),
                    std::min<std::size_t>(4, most));
      return;
    }
    case 3:  // a number that is one off
      bytes[at] = char(bytes[at] + (random() % 2 ? 1 : -1));
      return;
    case 4:
      bytes.erase(at, length);
      if (at < image) image -= length;
      return;
    case 5:
      bytes.insert(at, piece);
      if (at < image) image += length;
      return;
    default: {  // a piece from elsewhere
      const std::size_t to = place();
      const std::size_t fits = std::min(length, to < image ? image - to : bytes.size() - to);
      bytes.replace(to, fits, piece.substr(0, fits));
    }
  }
}

}  // namespace

HOST_TEST(damaged_programs_are_refused_or_run) {
  Fixture f(driver);
  Runtime& runtime = *new Runtime(driver);  // a device is never destroyed
  OptionsScope set;
  const std::string image = test_image(driver);
  const std::string members =
      ArraysProgram(image, 3, 10).add(0, 1, 2, 1).add(1, 2, 3, 4).add(0, 1, 5, 6).bytes();
  const std::string good = AffineProgram(image, 3, 10)
                               .scratch()
                               .add(0, 1, 2)
                               .memset(3, 2, 5, 4, 8)
                               .add(2, 3, 4)
                               .memcpy(3, 0, 1, 20, 20)
                               .add(1, 5, 6)
                               .add(0, 5, 6)
                               .memset(0, 4, 0, 0, 40)
                               .bytes();
  const Switches switches;
  host::set_execution(false);  // a damaged count would reach past the buffers
  std::mt19937 random(2143);
  int refused = 0, run = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = round % 3 ? good : members;
    std::size_t at = bytes.find(image);
    for (int edits = 1 + random() % 3; edits > 0; --edits) damage(bytes, at, image.size(), random);
    set->graph_after = int(random() % 2);
    try {
      ProgramOnDevices program(Program::decode(bytes));
      const Program& decoded = program.program();
      decoded.conflicts();
      decoded.cut(1 + random() % 5);
      std::vector<void*> buffers;
      for (std::size_t i = 0; i < decoded.arguments.size() + decoded.results.size(); ++i) {
        buffers.push_back(reinterpret_cast<void*>(std::uintptr_t(i + 1) << 40));
      }
      for (int call = 0; call < 2; ++call) runtime.run(program, 0, f.session.stream, buffers);
      ++run;
    } catch (const Error& error) {
      EXPECT(error.code() == Code::invalid_argument || error.code() == Code::not_found);
      ++refused;
    }
  }
  f.session.sync();
  EXPECT(refused > 1000);
  EXPECT(run > 200);
}

}  // namespace jge::test
