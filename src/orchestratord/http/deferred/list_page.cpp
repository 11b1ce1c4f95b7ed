#include "orchestratord/http/deferred/list_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::deferred {
namespace {

using chat::refused;

base::Result<std::size_t> limit_of(const net::Request& request, const PageRules& rules) {
  const auto text = request.query_param("limit");
  if (!text) return rules.usual;
  std::size_t limit = 0;
  const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), limit);
  if (ec == std::errc() && end == text->data() + text->size() && limit >= 1 && limit <= rules.most) return limit;
  return refused("limit", "range", fmt::format("limit is between 1 and {}", rules.most));
}

// The place in `page` of the entry that the query `name` names; nothing: there is no such query.
base::Result<std::optional<std::size_t>> place_of(const net::Request& request, std::string_view name,
                                                  const std::vector<std::string>& ids,
                                                  const std::vector<std::size_t>& page) {
  if (name.empty()) return std::nullopt;
  const auto id = request.query_param(name);
  if (!id || id->empty()) return std::nullopt;
  const auto it = std::ranges::find_if(page, [&](std::size_t index) { return ids[index] == *id; });
  if (it == page.end()) return refused(name, "unknown", fmt::format("{} is the id of an entry of this list", name));
  return static_cast<std::size_t>(it - page.begin());
}

void append_id(std::string& out, const std::vector<std::string>& ids, const std::vector<std::size_t>& page,
               bool first) {
  if (page.empty()) return void(out += "null");
  base::append_json_string(out, ids[first ? page.front() : page.back()]);
}

}  // namespace

base::Result<std::string> list_page(const net::Request& request, PageRules rules,
                                    const std::vector<std::string>& oldest_first,
                                    const std::function<std::string(std::size_t index)>& object_of) {
  const std::string_view order = rules.ordered ? request.query_param("order").value_or("desc") : "desc";
  if (order != "desc" && order != "asc") return refused("order", "type", "order is asc or desc");
  const std::size_t limit = TRY(limit_of(request, rules));
  std::vector<std::size_t> page(oldest_first.size());
  std::iota(page.begin(), page.end(), std::size_t{0});
  if (order == "desc") std::reverse(page.begin(), page.end());
  const auto after = TRY(place_of(request, rules.after, oldest_first, page));
  const auto before = TRY(place_of(request, rules.before, oldest_first, page));
  if (after && before) {
    return refused(rules.before, "combination", fmt::format("a page has one of {} and {}", rules.after, rules.before));
  }
  if (after) page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(*after) + 1);
  if (before) page.resize(*before);
  const bool has_more = page.size() > limit;
  if (has_more && before) page.erase(page.begin(), page.end() - static_cast<std::ptrdiff_t>(limit));
  if (has_more) page.resize(limit);
  std::string out = fmt::format(R"({{{}"data":[)", rules.opening);
  for (const std::size_t index : page) out.append(out.back() == '[' ? "" : ",").append(object_of(index));
  out += R"(],"first_id":)";
  append_id(out, oldest_first, page, true);
  out += R"(,"last_id":)";
  append_id(out, oldest_first, page, false);
  return out + fmt::format(R"(,"has_more":{}}})", has_more);
}

}  // namespace llorch::orchestratord::http::deferred
