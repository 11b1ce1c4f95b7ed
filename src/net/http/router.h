#pragma once
// Which route a method and a path mean. Pure; const use is thread-safe.
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::net::http {

class Router {
 public:
  // `pattern`: "/a/{id}/b". Returns the route's index, counted from 0. REQUIRES: starts with '/', not added before.
  std::size_t add(std::string_view method, std::string_view pattern);

  enum class Outcome { kFound, kNoPath, kNoMethod };
  struct Match {
    Outcome outcome = Outcome::kNoPath;
    std::size_t route = 0;  // with kFound
    std::map<std::string, std::string, std::less<>> params;
    std::string allowed;  // with kNoMethod: "GET, POST"
  };
  // HEAD is served by the route of GET.
  Match match(std::string_view method, const std::vector<std::string>& segments) const;
  const std::string& pattern(std::size_t route) const { return routes_[route].pattern; }

 private:
  struct Segment {
    std::string text;  // literal, or the parameter's name
    bool is_param = false;
  };
  struct Route {
    std::string method;
    std::string pattern;
    std::vector<Segment> segments;
  };
  static bool matches(const Route& route, const std::vector<std::string>& segments);
  static bool more_literal(const Route& a, const Route& b);

  std::vector<Route> routes_;
};

}  // namespace llorch::net::http
