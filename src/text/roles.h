#pragma once
// The roles of a conversation, for templates that refuse those it has (ADR 0087). Pure.
#include <boost/json/array.hpp>

#include <array>
#include <cstdint>

namespace llorch::text {

// In the order in which they are tried, each on what the one before it left. None moves a message to another place, so that a
// conversation which goes on begins as it did.
enum class RoleRule : std::uint8_t {
  kOneSystemMessage,  // system messages behind the leading ones are the user's
  kTextsJoinResults,  // what the user says directly behind a tool's result is a part of that
  kNoSystemMessage,   // the leading one is the user's too
};
inline constexpr std::array kRoleRules = {RoleRule::kOneSystemMessage, RoleRule::kTextsJoinResults,
                                          RoleRule::kNoSystemMessage};

// Follows the rule, then joins what one role says in a row, an assistant's calls apart, with a blank line between. Whether it changed
// anything. REQUIRES: objects, each with a string `role`.
bool follow(RoleRule rule, boost::json::array& messages);

}  // namespace llorch::text
