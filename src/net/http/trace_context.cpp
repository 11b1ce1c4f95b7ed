#include "net/http/trace_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace llorch::net::http {
namespace {

constexpr std::size_t kTraceparentBytes = 55;  // of version 00: 2 + 1 + 32 + 1 + 16 + 1 + 2
constexpr std::size_t kStateBytesMax = 512;    // the least that has to be handed on
constexpr std::size_t kStateMembersMax = 32;
constexpr std::size_t kLongMemberBytes = 128;

bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool is_zero(std::string_view hex) { return hex.find_first_not_of('0') == std::string_view::npos; }

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_lower_or_digit(char c) { return is_lower(c) || (c >= '0' && c <= '9'); }
bool is_key_char(char c) { return is_lower_or_digit(c) || c == '_' || c == '-' || c == '*' || c == '/'; }

bool is_state_key(std::string_view key) {
  if (key.empty()) return false;
  const std::size_t sign = key.find('@');
  if (sign == std::string_view::npos) {
    return key.size() <= 256 && is_lower(key.front()) && std::ranges::all_of(key, is_key_char);
  }
  const std::string_view tenant = key.substr(0, sign), system = key.substr(sign + 1);
  return !tenant.empty() && tenant.size() <= 241 && is_lower_or_digit(tenant.front()) &&
         std::ranges::all_of(tenant, is_key_char) && !system.empty() && system.size() <= 14 &&
         is_lower(system.front()) && std::ranges::all_of(system, is_key_char);
}

bool is_state_value(std::string_view value) {
  return !value.empty() && value.size() <= 256 && value.back() != ' ' &&
         std::ranges::all_of(value, [](char c) { return c >= 0x20 && c <= 0x7E && c != ',' && c != '='; });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  const std::size_t end = text.find_last_not_of(" \t");
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

// Adds the members of one field; false: it is malformed.
bool read_members(std::string_view field, std::vector<std::string_view>& out) {
  while (true) {
    const std::size_t comma = field.find(',');
    const std::string_view member = trimmed(field.substr(0, comma));
    if (!member.empty()) {
      const std::size_t equals = member.find('=');
      if (equals == std::string_view::npos || !is_state_key(member.substr(0, equals)) ||
          !is_state_value(member.substr(equals + 1)) || out.size() == kStateMembersMax) {
        return false;
      }
      out.push_back(member);
    }
    if (comma == std::string_view::npos) return true;
    field.remove_prefix(comma + 1);
  }
}

std::string trace_state(const Headers& headers) {
  std::vector<std::string_view> members;
  for (const auto& [name, value] : headers.fields()) {
    if (equals_ignoring_case(name, "tracestate") && !read_members(value, members)) return {};
  }
  const auto bytes = [&] {
    std::size_t sum = members.empty() ? 0 : members.size() - 1;
    for (const std::string_view member : members) sum += member.size();
    return sum;
  };
  if (bytes() > kStateBytesMax) std::erase_if(members, [](auto member) { return member.size() > kLongMemberBytes; });
  while (bytes() > kStateBytesMax) members.pop_back();
  std::string out;
  for (const std::string_view member : members) {
    if (!out.empty()) out += ',';
    out += member;
  }
  return out;
}

}  // namespace

std::shared_ptr<const base::TraceContext> trace_context(const Headers& headers) {
  const auto parent = headers.get("traceparent");
  if (!parent || headers.count("traceparent") != 1 || parent->size() < kTraceparentBytes) return nullptr;
  const std::string_view version = parent->substr(0, 2), trace_id = parent->substr(3, 32);
  const std::string_view parent_id = parent->substr(36, 16), flags = parent->substr(53, 2);
  const bool has_dashes = (*parent)[2] == '-' && (*parent)[35] == '-' && (*parent)[52] == '-';
  const bool is_hex = is_lower_hex(version) && is_lower_hex(trace_id) && is_lower_hex(parent_id) && is_lower_hex(flags);
  if (!has_dashes || !is_hex || version == "ff" || is_zero(trace_id) || is_zero(parent_id)) return nullptr;
  if (parent->size() > kTraceparentBytes && (version == "00" || (*parent)[kTraceparentBytes] != '-')) return nullptr;
  const bool is_sampled = std::string_view("13579bdf").find(flags[1]) != std::string_view::npos;  // the lowest bit
  return std::make_shared<const base::TraceContext>(base::TraceContext{.trace_id = std::string(trace_id),
                                                                       .is_sampled = is_sampled,
                                                                       .parent_id = std::string(parent_id),
                                                                       .state = trace_state(headers)});
}

std::shared_ptr<const base::TraceContext> new_trace(base::Entropy& entropy) {
  std::uint64_t high = entropy.next_u64();
  while (high == 0) high = entropy.next_u64();
  return std::make_shared<const base::TraceContext>(
      base::TraceContext{.trace_id = fmt::format("{:016x}{:016x}", high, entropy.next_u64()), .is_sampled = true});
}

void set_trace_context(Headers& headers, const base::TraceContext& trace, base::Entropy& entropy) {
  std::uint64_t parent_id = entropy.next_u64();
  while (parent_id == 0) parent_id = entropy.next_u64();
  headers.set("traceparent", fmt::format("00-{}-{:016x}-{:02x}", trace.trace_id, parent_id, trace.is_sampled ? 1 : 0));
  if (!trace.state.empty()) headers.set("tracestate", trace.state);
}

}  // namespace llorch::net::http
