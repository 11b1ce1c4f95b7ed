#pragma once
// Tokens by their bytes, for searches that walk a text once.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace llorch::text::model {

using base::TokenId;

// Made by add() for each token and then settle(); immutable and safe from any thread behind that.
class TokenTrie {
 public:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = 0;  // the root is nobody's child

  struct Node {
    std::uint32_t child = kNone, sibling = kNone;
    std::uint32_t next_group = kNone;  // of the first of its group: see child_or_new()
    std::uint32_t depth = 0;           // bytes from the root
    std::optional<TokenId> token;      // that ends here
    char byte = 0;
  };

  // The node at the end of non-empty `text`; the first token added there stays.
  std::uint32_t add(std::string_view text, TokenId token);
  // Lets child_of() look among many children as fast as among few.
  void settle();
  const Node& node(std::uint32_t index) const { return nodes_[index]; }
  std::size_t size() const { return nodes_.size(); }
  // kNone when there is none. O(1) from the root, O(log children) below. REQUIRES settle().
  std::uint32_t child_of(std::uint32_t node, char byte) const;

 private:
  // Siblings whose bytes have the same upper half are a group and stand in a row, so that 32 are passed at most.
  std::uint32_t child_or_new(std::uint32_t parent, char byte);

  struct Child {
    char byte;
    std::uint32_t node;
  };
  std::vector<Node> nodes_{Node{}};
  std::vector<std::uint32_t> first_ = std::vector<std::uint32_t>(256, kNone);  // children of the root by byte
  std::vector<Child> children_;                                                // by parent, those of one by byte
  std::vector<std::uint32_t> children_begin_;                                  // [nodes + 1]
};

}  // namespace llorch::text::model
