#include "orchestratord/http/openai/deferred/list_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::openai {
namespace {

using chat::refused;

base::Result<std::size_t> limit_of(const net::Request& request, PageLimits limits) {
  const auto text = request.query_param("limit");
  if (!text) return limits.usual;
  std::size_t limit = 0;
  const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), limit);
  if (ec == std::errc() && end == text->data() + text->size() && limit >= 1 && limit <= limits.most) return limit;
  return refused("limit", "range", fmt::format("limit is between 1 and {}", limits.most));
}

void append_id(std::string& out, const std::vector<std::string>& ids, const std::vector<std::size_t>& page,
               bool first) {
  if (page.empty()) return void(out += "null");
  base::append_json_string(out, ids[first ? page.front() : page.back()]);
}

}  // namespace

base::Result<std::string> list_page(const net::Request& request, PageLimits limits,
                                    const std::vector<std::string>& oldest_first,
                                    const std::function<std::string(std::size_t index)>& object_of) {
  const auto order = request.query_param("order").value_or("desc");
  if (order != "desc" && order != "asc") return refused("order", "type", "order is asc or desc");
  const std::size_t limit = TRY(limit_of(request, limits));
  std::vector<std::size_t> page(oldest_first.size());
  std::iota(page.begin(), page.end(), std::size_t{0});
  if (order == "desc") std::reverse(page.begin(), page.end());
  if (const auto after = request.query_param("after"); after && !after->empty()) {
    const auto it = std::ranges::find_if(page, [&](std::size_t index) { return oldest_first[index] == *after; });
    if (it == page.end()) return refused("after", "unknown", "after is the id of the last one of a page");
    page.erase(page.begin(), it + 1);
  }
  const bool has_more = page.size() > limit;
  if (has_more) page.resize(limit);
  std::string out = R"({"object":"list","data":[)";
  for (const std::size_t index : page) out.append(out.back() == '[' ? "" : ",").append(object_of(index));
  out += R"(],"first_id":)";
  append_id(out, oldest_first, page, true);
  out += R"(,"last_id":)";
  append_id(out, oldest_first, page, false);
  return out + fmt::format(R"(,"has_more":{}}})", has_more);
}

}  // namespace llorch::orchestratord::http::openai
