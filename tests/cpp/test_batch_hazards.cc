// tests/cpp/test_batch_hazards.cc: a remembered batch has the edges that it had before.
#include <random>
#include <vector>

#include "core/run/batch_hazards.h"
#include "test.h"

namespace jge::test {
namespace {

// One node of a batch: a join of all since `first`, a node apart, or a plain one.
struct Node {
  int how;
  std::uint32_t first;
  std::vector<Access> accesses;
};

template <class Target>
std::vector<std::uint32_t> add(Target& target, const Node& node) {
  const auto edges = node.how == 0   ? target.add(node.accesses)
                     : node.how == 1 ? target.add_apart(node.accesses)
                                     : target.add_join(node.first, node.accesses);
  return {edges.begin(), edges.end()};
}

}  // namespace

HOST_TEST(batches_that_repeat_have_the_hazards_of_new_ones) {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return random() % n; };
  const auto node = [&](std::uint32_t place) {
    Node made{below(8) == 0 ? 1 : place > 1 && below(8) == 0 ? 2 : 0, 0, {}};
    if (made.how == 2) made.first = place - 1 - below(place - 1);
    for (unsigned i = below(4); i > 0; --i) {
      const std::uint64_t begin = below(20);
      made.accesses.push_back({0, begin, begin + below(6), below(2) == 0, below(2) == 0});
    }
    return made;
  };
  BatchHazards remembered;
  std::vector<std::vector<Node>> batches;
  for (int round = 0; round < 3000; ++round) {
    // An earlier batch: as it was, cut short, or with another end; or a new one.
    std::vector<Node> batch;
    if (!batches.empty() && below(4) > 0) batch = batches[below(batches.size())];
    const unsigned change = below(3);
    if (change > 0 && !batch.empty()) batch.resize(below(batch.size()) + 1);
    while (change > 1 || batch.empty()) {
      batch.push_back(node(batch.size()));
      if (below(10) == 0) break;
    }
    if (batches.size() < 20) batches.push_back(batch);

    Hazards fresh;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto expected = add(fresh, batch[i]);
      EXPECT(add(remembered, batch[i]) == expected);
      EXPECT_EQ(remembered.level(), fresh.levels().back());
      EXPECT_EQ(remembered.bytes(), fresh.bytes());
    }
    EXPECT_EQ(remembered.size(), fresh.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EXPECT(remembered.dependencies(i).size() <= i);
    }
    remembered.clear();
    EXPECT_EQ(remembered.bytes(), 0u);
  }
}

HOST_TEST(hazards_count_each_byte_once) {
  Hazards hazards;
  const auto touch = [&](std::uint64_t begin, std::uint64_t end, bool writes) {
    const Access access{0, begin, end, !writes, writes};
    hazards.add({&access, 1});
    return hazards.bytes();
  };
  EXPECT_EQ(touch(100, 200, false), 100u);
  EXPECT_EQ(touch(150, 250, true), 150u);
  EXPECT_EQ(touch(0, 50, true), 200u);
  EXPECT_EQ(touch(0, 300, true), 300u);
  EXPECT_EQ(touch(120, 130, false), 300u);
  hazards.clear();
  EXPECT_EQ(hazards.bytes(), 0u);
}

}  // namespace jge::test
