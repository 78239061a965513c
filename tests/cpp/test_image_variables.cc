// tests/cpp/test_image_variables.cc: which images have variables that kernels may write, and that
// such kernels are ordered. tests/python/test_module_variables.py has compiled images.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/program/image_variables.h"
#include "core/program/program.h"
#include "program_bytes.h"
#include "test.h"

namespace jge::test {
namespace {

const std::string kPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".const .align 4 .b8 w[16];\n"
    ".global .align 1 .b8 $str[9] = {104, 101};\n"
    ".global .align 1 .b8 __unnamed_1[31] = {118};\n"
    ".global .align 1 .u8 _Z13__jge_type_ofIPFvPfEE;\n"
    ".visible .entry affine(\n\t.param .u64 .ptr .global .align 4 affine_param_0)\n{\n"
    "\tcvta.to.global.u64 %rd1, %rd2;\n\tld.global.f32 %f1, [%rd1];\n\tret;\n}\n";

std::string fatbin(const std::vector<std::string>& images, std::uint32_t compressed = 0) {
  Writer entries;
  for (const std::string& image : images) {
    const bool ptx = image.starts_with(".version");
    entries.raw(std::uint16_t(ptx ? 1 : 2)).raw(std::uint16_t{0x101}).u32(64).u64(image.size());
    entries.u32(compressed).append(std::string(44, '\0')).append(image);
  }
  Writer out;
  out.u32(0xBA55ED50).raw(std::uint16_t{1}).raw(std::uint16_t{16}).u64(entries.bytes().size());
  return out.append(entries.bytes()).bytes();
}

// Two nodes over buffers of their own, of one kernel of this image.
std::shared_ptr<const Program> two_nodes(const std::string& image) {
  return Program::decode(AffineProgram(image, 2, 10).add(0, 1, 2).add(1, 1, 2).bytes());
}

}  // namespace

HOST_TEST(images_have_variables_where_their_kernels_may_write_some) {
  EXPECT(!has_variables(kPtx));
  for (const char* declared :
       {".global .align 4 .u32 counter;\n", ".visible .global .align 4 .f32 a = 0f3F800000;\n",
        ".weak\n.global\t.align 8 .b8 table[64];\n", ".extern .global .u64 other;\n"}) {
    EXPECT(has_variables(kPtx + declared));
  }
  EXPECT(!has_variables(test_image(driver)));
  EXPECT(!has_variables(fatbin({kPtx, kPtx})));
  EXPECT(has_variables(fatbin({kPtx, kPtx + ".global .u32 counter;\n"})));
  EXPECT(has_variables(fatbin({kPtx}, 100)));  // it cannot be told
}

HOST_TEST(kernels_that_may_write_a_modules_variables_are_ordered) {
  EXPECT(two_nodes(kPtx)->dependencies(1).empty());
  const auto program = two_nodes(kPtx + ".global .u32 counter;\n");
  EXPECT_EQ(program->dependencies(1).size(), 1u);
  EXPECT_EQ(program->bytes, 80u);  // of its buffers
  using Conflicts = std::vector<Conflict>;
  EXPECT((program->conflicts()[1] == Conflicts{{0, 1, Hazard::read_after_write, 0, 1}}));
}

// Whatever the bytes of an image are, looking at it stays within them.
HOST_TEST(damaged_images_are_looked_at_without_a_crash) {
  std::mt19937 random(15);
  for (const std::string& good : {test_image(driver), fatbin({kPtx, test_image(driver)})}) {
    for (int round = 0; round < 3000; ++round) {
      std::string image = good;
      for (int changes = 1 + random() % 4; changes > 0; --changes) {
        // Mostly in headers: the first and last bytes, and any.
        const std::size_t reach = random() % 2 ? 200 : image.size();
        const std::size_t at = random() % std::min(reach, image.size());
        image[random() % 2 ? at : image.size() - 1 - at] = char(random());
      }
      has_variables(image);
    }
  }
}

}  // namespace jge::test
