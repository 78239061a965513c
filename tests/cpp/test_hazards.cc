// tests/cpp/test_hazards.cc: edges from address ranges.
#include <algorithm>
#include <random>
#include <vector>

#include "core/program/hazards.h"
#include "test.h"

namespace jge::test {
namespace {

using Nodes = std::vector<std::uint32_t>;

Access reads(std::uint64_t begin, std::uint64_t end, std::uint32_t space = 0) {
  return {space, begin, end, true, false};
}
Access writes(std::uint64_t begin, std::uint64_t end, std::uint32_t space = 0) {
  return {space, begin, end, false, true};
}
Access updates(std::uint64_t begin, std::uint64_t end, std::uint32_t space = 0) {
  return {space, begin, end, true, true};
}

Nodes add(Hazards& hazards, std::vector<Access> accesses) {
  const auto found = hazards.add(accesses);
  return {found.begin(), found.end()};
}

}  // namespace

HOST_TEST(hazards_orders_each_pair_of_accesses) {
  Hazards h;
  EXPECT(add(h, {writes(0, 8)}).empty());
  EXPECT(add(h, {reads(0, 8)}) == Nodes{0});        // read after write
  EXPECT(add(h, {reads(4, 6)}) == Nodes{0});        // reads do not wait for each other
  EXPECT((add(h, {writes(0, 8)}) == Nodes{1, 2}));  // write after reads; the write is implied
  EXPECT(add(h, {writes(7, 9)}) == Nodes{3});       // write after write
  EXPECT(add(h, {reads(0, 7)}) == Nodes{3});
  EXPECT(add(h, {reads(8, 9)}) == Nodes{4});
}

HOST_TEST(hazards_keeps_disjoint_slices_and_spaces_apart) {
  Hazards h;
  EXPECT(add(h, {updates(0, 16)}).empty());
  EXPECT(add(h, {updates(16, 32)}).empty());
  EXPECT(add(h, {updates(0, 16, 3)}).empty());
  EXPECT((add(h, {reads(0, 32)}) == Nodes{0, 1}));
  EXPECT(add(h, {writes(8, 8)}).empty());  // no bytes, no hazard
  EXPECT(add(h, {{0, 0, 32, false, false}}).empty());
  EXPECT(h.levels()[3] == 1 && h.levels()[2] == 0);
}

HOST_TEST(hazards_never_makes_a_node_wait_for_itself) {
  Hazards h;
  EXPECT(add(h, {reads(0, 8), writes(0, 8), reads(4, 12), writes(2, 3)}).empty());
  EXPECT(add(h, {updates(0, 12)}) == Nodes{0});
}

HOST_TEST(hazards_tells_a_watcher_what_the_edges_come_from) {
  using enum Hazard;
  Hazards h;
  std::vector<Conflict> seen;
  h.watch(&seen);
  const auto found = [&](std::vector<Access> accesses) {
    seen.clear();
    h.add(accesses);
    return seen;
  };
  using Conflicts = std::vector<Conflict>;
  EXPECT(found({writes(0, 8), writes(16, 24)}).empty());
  EXPECT((found({reads(4, 20)}) ==
          Conflicts{{0, 0, read_after_write, 4, 8}, {0, 0, read_after_write, 16, 20}}));
  EXPECT((found({reads(30, 31), writes(6, 10)}) == Conflicts{{0, 1, write_after_write, 6, 8},
                                                             {1, 1, write_after_read, 6, 8},
                                                             {1, 1, write_after_read, 8, 10}}));
  EXPECT((found({updates(6, 7)}) == Conflicts{{2, 0, read_after_write, 6, 7}}));
  found({reads(40, 48), reads(40, 44)});  // 4
  EXPECT((found({writes(40, 44)}) == Conflicts{{4, 0, write_after_read, 40, 44}}));
  // Added apart, a node leaves no trace but sees as much.
  seen.clear();
  h.add_apart(std::vector<Access>{updates(0, 2), writes(6, 7)});
  EXPECT((seen == Conflicts{{0, 0, read_after_write, 0, 2}, {3, 1, write_after_write, 6, 7}}));
}

HOST_TEST(hazards_forgets_on_clear) {
  Hazards h;
  add(h, {writes(0, 8)});
  h.clear();
  EXPECT(add(h, {reads(0, 8)}).empty());
  EXPECT(h.size() == 1u);
}

HOST_TEST(hazards_joins_nodes_that_were_added_apart) {
  Hazards h;
  add(h, {writes(0, 8)});
  const auto apart = [&](std::vector<Access> accesses) {
    const auto found = h.add_apart(accesses);
    return Nodes{found.begin(), found.end()};
  };
  // They wait for what came before, never for each other, even where they write the same bytes.
  EXPECT(apart({updates(0, 8)}) == Nodes{0});
  EXPECT(apart({updates(0, 8)}) == Nodes{0});
  EXPECT(apart({reads(0, 4), writes(16, 20)}) == Nodes{0});
  const std::vector<Access> all = {updates(0, 8), reads(0, 4), writes(16, 20)};
  const auto join = h.add_join(1, all);
  EXPECT((Nodes{join.begin(), join.end()} == Nodes{1, 2, 3}));
  EXPECT(add(h, {reads(0, 1)}) == Nodes{4});
  EXPECT(add(h, {writes(18, 30)}) == Nodes{4});
  EXPECT(add(h, {writes(30, 31)}).empty());
}

// Against the definition: byte by byte, and reachability by search.
HOST_TEST(hazards_equals_the_definition_on_random_accesses) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto below = [&](std::uint32_t n) { return std::uint32_t(random() % n); };
    std::vector<std::vector<Access>> nodes(1 + below(70));
    for (auto& accesses : nodes) {
      accesses.resize(below(4));
      for (Access& access : accesses) {
        const std::uint64_t begin = below(20);
        access = {below(2), begin, begin + below(8), below(2) != 0, below(2) != 0};
      }
    }
    const auto conflict = [](const std::vector<Access>& a, const std::vector<Access>& b) {
      for (const Access& x : a) {
        for (const Access& y : b) {
          if (x.space != y.space || (!x.writes && !y.writes)) continue;
          if (!(x.reads || x.writes) || !(y.reads || y.writes)) continue;
          if (std::max(x.begin, y.begin) < std::min(x.end, y.end)) return true;
        }
      }
      return false;
    };
    const std::size_t n = nodes.size();
    Hazards h;
    std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
    for (std::size_t i = 0; i < n; ++i) {
      const Nodes found = add(h, nodes[i]);
      EXPECT(std::ranges::is_sorted(found));
      for (std::uint32_t on : found) {
        // Every edge is there for a conflict, and no edge is implied by another.
        EXPECT(conflict(nodes[on], nodes[i]));
        for (std::uint32_t other : found) EXPECT(!before[other][on]);
      }
      for (std::uint32_t on : found) {
        before[i][on] = true;
        for (std::size_t k = 0; k < n; ++k) before[i][k] = before[i][k] || before[on][k];
      }
      for (std::size_t k = 0; k < i; ++k) EXPECT(before[i][k] || !conflict(nodes[k], nodes[i]));
    }
  }
}

}  // namespace jge::test
