// tests/cpp/test_joins.cc: where many nodes wait for the same many, they wait for one between.
#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "core/program/hazards.h"
#include "core/program/program.h"
#include "core/sinks/capture_sink.h"
#include "host_session.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

// Fills of a slice each, copies that read them all to buffers of their own, and, with `again`, the
// same over once more.
std::shared_ptr<const Program> all_to_all(std::uint32_t writers, std::uint32_t readers,
                                          bool again = false) {
  const std::uint64_t bytes = std::uint64_t{4} * writers;
  Writer out;
  out.append("JGEP").u32(1).str("all to all").u32(0).u32(readers + 1);
  for (std::uint32_t i = 0; i <= readers; ++i) out.u64(bytes).u32(0).u8(0);
  const std::uint32_t rounds = again ? 2 : 1;
  out.u32(0).u32(0).u32(rounds * (writers + readers));
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < writers; ++i) {
      out.u8(2).u8(4).u32(1000 * round + i).result(0, 4 * i, 4);
    }
    for (std::uint32_t i = 0; i < readers; ++i) {
      out.u8(3).result(0, 0, bytes).result(1 + i, 0, bytes);
    }
  }
  return Program::decode(out.bytes());
}

std::size_t edges_of(const Program& program) {
  std::size_t edges = 0;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) edges += program.dependencies(i).size();
  return edges;
}

using Rows = std::vector<std::vector<bool>>;

// Which of the added nodes come before which, joins left out.
Rows order_of(const std::vector<std::vector<Access>>& nodes, bool with_joins, std::size_t& edges) {
  Hazards hazards(with_joins);
  Rows before;                      // by node, joins included
  std::vector<std::size_t> number;  // of the added ones
  const auto add = [&](Edges on) {
    edges += on.size();
    std::vector<bool>& mine = before.emplace_back(before.size());
    for (std::uint32_t i : on) {
      mine[i] = true;
      for (std::size_t k = 0; k < before[i].size(); ++k) mine[k] = mine[k] || before[i][k];
    }
  };
  for (const auto& accesses : nodes) {
    const Edges on = hazards.add(accesses);
    EXPECT(std::ranges::is_sorted(on));
    for (const auto& join : hazards.joins()) add(join);
    add(on);
    number.push_back(before.size() - 1);
  }
  EXPECT_EQ(hazards.size(), before.size());
  Rows rows;
  for (std::size_t i = 0; i < number.size(); ++i) {
    rows.emplace_back();
    for (std::size_t k = 0; k < i; ++k) rows.back().push_back(before[number[i]][number[k]]);
  }
  return rows;
}

}  // namespace

HOST_TEST(joins_leave_few_edges_where_many_nodes_wait_for_many) {
  for (const std::uint32_t n : {100u, 1000u, 1500u, 6000u}) {
    const auto program = all_to_all(n, n);
    EXPECT_EQ(program->nodes.size(), 2 * n + 1);
    EXPECT_EQ(edges_of(*program), 3 * n - 1);
  }
  // Few are left as they are.
  EXPECT_EQ(all_to_all(50, 50)->nodes.size(), 100u);
  EXPECT_EQ(all_to_all(1500, 1)->nodes.size(), 1501u);
  EXPECT_EQ(all_to_all(1, 1500)->nodes.size(), 1501u);
  // Writers of the second round wait for all readers of the first.
  const auto again = all_to_all(1500, 1500, true);
  EXPECT(edges_of(*again) < 8 * 1500u);
  EXPECT(again->nodes.size() < 4 * 1500u + 6);
  const auto conflicts = again->conflicts();
  for (std::size_t i = 0; i < again->nodes.size(); ++i) {
    if (!std::holds_alternative<JoinNode>(again->nodes[i]) && !again->dependencies(i).empty()) {
      EXPECT(!conflicts[i].empty());
    }
  }
}

// Joins add no order that the memory does not ask for, and lose none.
HOST_TEST(joins_keep_the_order_of_random_accesses) {
  std::mt19937 random(10);
  std::size_t with = 0, without = 0;
  for (int round = 0; round < 60; ++round) {
    const auto below = [&](std::uint32_t n) { return std::uint32_t(random() % n); };
    std::vector<std::vector<Access>> nodes;
    const std::uint32_t slices = 60 + below(60);
    for (std::uint32_t phase = 2 + below(6); phase > 0; --phase) {
      const std::uint32_t kind = below(6), many = 60 + below(60);
      const std::uint64_t begin = below(3) == 0 ? below(20) : 0;
      for (std::uint32_t i = 0; i < many; ++i) {
        const std::uint64_t at = i % slices;
        const bool other = below(40) == 0;
        std::vector<Access>& made = nodes.emplace_back();
        if (kind < 2 || other) {  // a slice
          made.push_back({0, at, at + 1, below(2) == 0, true});
        } else if (kind < 4) {  // all of it
          made.push_back({0, begin, slices, true, false});
        } else if (kind == 4) {  // a slice, read
          made.push_back({0, at, at + 1 + below(3), true, false});
        } else {  // all of it, to a slice of another
          made.push_back({0, begin, slices, true, false});
          made.push_back({1, at, at + 1, false, true});
        }
        if (below(20) == 0) made.push_back({1, 0, slices, true, false});
        if (below(60) == 0) made.push_back({below(2), begin, slices, true, true});
      }
    }
    EXPECT(order_of(nodes, true, with) == order_of(nodes, false, without));
  }
  EXPECT(with < without / 2);
}

HOST_TEST(programs_with_joins_give_the_values_of_their_order) {
  Fixture f(driver);
  OptionsScope set;
  const Switches switches;
  const std::uint32_t n = 80;
  ProgramOnDevices program(all_to_all(n, n, true));
  std::vector<std::unique_ptr<Buffer<std::uint32_t>>> data;
  std::vector<void*> buffers;
  for (std::uint32_t i = 0; i <= n; ++i) {
    data.push_back(std::make_unique<Buffer<std::uint32_t>>(f.session, n));
    buffers.push_back(reinterpret_cast<void*>(data.back()->pointer));
  }
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < n; ++i) expected.push_back(1000 + i);
  for (int run = 0; run < 6; ++run) {
    for (auto& buffer : data) buffer->write(std::vector<std::uint32_t>(n, 7));
    host::set_order_seed(run);
    set->max_ops_per_graph = run % 2 ? 1000 : 20;
    if (run == 4) set->use_graphs = false;
    if (run == 5) {  // in another's capture
      OK(driver.cuStreamBeginCapture(f.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    }
    f.runtime.run(program, 0, f.session.stream, buffers);
    if (run == 5) {
      CUgraph graph = nullptr;
      OK(driver.cuStreamEndCapture(f.session.stream, &graph));
      TestGraph captured(f.session, graph);
      captured.instantiate();
      captured.launch();
      f.session.sync();
    }
    for (auto& buffer : data) EXPECT(buffer->read() == expected);
  }
}

}  // namespace jge::test
