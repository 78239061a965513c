// plugin/core/nodes/nodes.cc: the list of all kinds of nodes.
#include "core/nodes/nodes.h"

#include <optional>

namespace jge {
namespace {

template <class... Kinds>
constexpr bool are_node_kinds(std::type_identity<std::variant<Kinds...>>) {
  return (NodeKind<Kinds> && ...);
}
template <class... Kinds>
constexpr bool are_program_node_kinds(std::type_identity<std::variant<Kinds...>>) {
  return (ProgramNodeKind<Kinds> && ...);
}
template <class... Kinds>
constexpr bool have_own_numbers(std::type_identity<std::variant<Kinds...>>) {
  // All bits differ if adding them and joining them is the same.
  return ((1u << Kinds::kNumber) + ...) == ((1u << Kinds::kNumber) | ...);
}
static_assert(are_node_kinds(std::type_identity<BoundNode>()));
static_assert(are_program_node_kinds(std::type_identity<Node>()));
static_assert(have_own_numbers(std::type_identity<BoundNode>()));

template <class... Kinds>
Node read_one_of(NodeReader& reader, std::type_identity<std::variant<Kinds...>>) {
  const std::uint8_t number = reader.in.u8();
  std::optional<Node> node;
  const auto read = [&]<class Kind>(std::type_identity<Kind>) {
    if (number == Kind::kNumber) node = Kind::read(reader);
  };
  (read(std::type_identity<Kinds>()), ...);
  if (!node) refuse("a node is of an unknown kind");
  return *node;
}

}  // namespace

Node read_node(NodeReader& reader) { return read_one_of(reader, std::type_identity<Node>()); }

}  // namespace jge
