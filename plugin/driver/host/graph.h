// plugin/driver/host/graph.h: graphs of the software driver, and what is instantiated from them.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "driver/host/operations.h"

namespace jge::host {

struct Node : Handle<Kind::kNode> {
  Graph* graph = nullptr;
  std::size_t index = 0;  // in the order they were added
  Operation operation;
  std::vector<Node*> dependencies;
};

struct Graph : Handle<Kind::kGraph> {
  ~Graph();
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::size_t> order;  // topological; filled by instantiation
  std::shared_ptr<Graph> self;     // where the user owns it
};

struct Exec : Handle<Kind::kExec> {
  ~Exec();
  std::shared_ptr<Graph> plan;  // launches share it, so it is copied before it is written
  std::weak_ptr<Graph> source;
  std::unordered_map<const void*, std::size_t> index;  // node of the source to its place
};

Node& add_node(Graph& graph, Operation operation, const CUgraphNode* dependencies,
               std::size_t count);
std::shared_ptr<Graph> copy(const Graph& graph);
CUgraph publish(std::shared_ptr<Graph> graph);  // hands it to the user

// Fails where edge data says more than "after completion of".
void require_plain(const CUgraphEdgeData* edges, std::size_t count);

}  // namespace jge::host
