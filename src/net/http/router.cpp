#include "net/http/router.h"

#include "base/assert.h"

namespace llorch::net::http {

std::size_t Router::add(std::string_view method, std::string_view pattern) {
  ASSERT(pattern.starts_with('/'), "pattern {}", pattern);
  Route route{std::string(method), std::string(pattern), {}};
  for (std::size_t at = 1; pattern != "/" && at <= pattern.size();) {
    const std::size_t end = std::min(pattern.find('/', at), pattern.size());
    const std::string_view text = pattern.substr(at, end - at);
    const bool is_param = text.size() > 2 && text.front() == '{' && text.back() == '}';
    route.segments.push_back({std::string(is_param ? text.substr(1, text.size() - 2) : text), is_param});
    at = end + 1;
  }
  for (const Route& other : routes_) {
    ASSERT(other.method != method || other.pattern != pattern, "route {} {} added twice", method, pattern);
  }
  routes_.push_back(std::move(route));
  return routes_.size() - 1;
}

bool Router::matches(const Route& route, const std::vector<std::string>& segments) {
  if (route.segments.size() != segments.size()) return false;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& want = route.segments[i];
    if (want.is_param ? segments[i].empty() : segments[i] != want.text) return false;
  }
  return true;
}

// Whether `a` has a literal at the first place where one of the two has a parameter.
bool Router::more_literal(const Route& a, const Route& b) {
  for (std::size_t i = 0; i < a.segments.size(); ++i) {
    if (a.segments[i].is_param != b.segments[i].is_param) return b.segments[i].is_param;
  }
  return false;
}

Router::Match Router::match(std::string_view method, const std::vector<std::string>& segments) const {
  Match match;
  const Route* best = nullptr;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : routes_) {
    if (!matches(route, segments)) continue;
    if (route.method == wanted) {
      if (best == nullptr || more_literal(route, *best)) best = &route;
    } else if (match.allowed.find(route.method) == std::string::npos) {
      match.allowed += (match.allowed.empty() ? "" : ", ") + route.method;
      if (route.method == "GET") match.allowed += ", HEAD";
    }
  }
  if (best == nullptr) {
    match.outcome = match.allowed.empty() ? Outcome::kNoPath : Outcome::kNoMethod;
    return match;
  }
  match.outcome = Outcome::kFound;
  match.route = static_cast<std::size_t>(best - routes_.data());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (best->segments[i].is_param) match.params[best->segments[i].text] = segments[i];
  }
  return match;
}

}  // namespace llorch::net::http
