#include "orchestratord/http/console/console.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "base/assert.h"
#include "base/sha256.h"
#include "orchestratord/http/console/page_files.h"

namespace llorch::orchestratord::http::console {
namespace {

constexpr std::string_view kPrefix = "/console/";
constexpr std::string_view kIndex = "index.html";

// No script, style or address that is not this server's, no frame around the page, no form that goes anywhere.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type_of(std::string_view path) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{".html", "text/html; charset=utf-8"},
                                                                      {".css", "text/css; charset=utf-8"},
                                                                      {".js", "text/javascript; charset=utf-8"},
                                                                      {".svg", "image/svg+xml"}};
  for (const auto& [ending, type] : kTypes) {
    if (path.ends_with(ending)) return type;
  }
  ASSERT(false, "page/ has a file of a type that nobody named");
  return {};
}

struct Served {
  std::string_view path, content_type, bytes;
  std::string etag;  // of the bytes alone: the same in every build that has them
};

const std::map<std::string_view, Served>& served() {
  static const auto files = [] {
    std::map<std::string_view, Served> out;
    for (const auto& [path, bytes] : page_files()) {
      out[path] = {path, content_type_of(path), bytes, '"' + base::to_hex(base::sha256(bytes)).substr(0, 32) + '"'};
    }
    return out;
  }();
  return files;
}

net::http::Headers headers_of(const Served& file) {
  return {{"Content-Type", std::string(file.content_type)},
          {"ETag", file.etag},
          // A browser keeps the file and asks each time whether it is still the same: a new build shows at once.
          {"Cache-Control", "no-cache"},
          {"Content-Security-Policy", std::string(kContentSecurityPolicy)},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

}  // namespace

base::Result<net::Response> answer(std::string_view path, std::optional<std::string_view> known_etag) {
  const std::string_view name = path == "/"                 ? kIndex
                                : path.starts_with(kPrefix) ? path.substr(kPrefix.size())
                                                            : std::string_view();
  const auto file = served().find(name);
  if (file == served().end()) {
    return base::fail(base::ErrorCode::kNotFound, "the console has no such file; its page is at /");
  }
  net::Response response{.status = 200, .headers = headers_of(file->second), .body = {}};
  if (known_etag && *known_etag == file->second.etag) {
    response.status = 304;
  } else {
    response.body = file->second.bytes;
  }
  return response;
}

bool is_asked_for(const net::http::Headers& headers) {
  return headers.get("Accept").value_or("").find("text/html") != std::string_view::npos;
}

void serve(const net::Request& request, const net::ExchangePtr& exchange) {
  auto response = answer(request.path, request.headers.get("If-None-Match"));
  if (!response) {
    exchange->respond_error(response.error());
  } else {
    exchange->respond(std::move(*response));
  }
}

}  // namespace llorch::orchestratord::http::console
