#include "net/http/browser.h"

#include <gtest/gtest.h>

namespace llorch::net::http {
namespace {

using base::ErrorCode;

const BrowserRules kRules{.hosts = {"llm.example"},
                          .cors_origins = {"https://chat.example", "http://chat.example:3000", "app://obsidian.md"},
                          .cors_key = "some.origins"};

// "ours", the origin of a listed site, or why it is refused.
std::string verdict(Headers headers, std::string_view local_address = "192.0.2.7:8080") {
  const auto result = check_browser(kRules, {&headers, local_address});
  if (result) return result->value_or("ours");
  EXPECT_EQ(result.error().code, ErrorCode::kForbidden);
  return std::get<std::string>(result.error().details.at(0).second);
}

TEST(Browser, HostsThatAreOurs) {
  for (const char* host : {"localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1", "127.4.5.6:1", "[::1]:8080",
                           "[::1]", "192.0.2.7", "192.0.2.7:99", "llm.example", "LLM.example:443", "llm.example."}) {
    EXPECT_EQ(verdict({{"Host", host}}), "ours") << host;
  }
  EXPECT_EQ(verdict({{"Host", "[2001:db8::1]:80"}}, "[2001:db8:0::1]:8080"), "ours") << "one address, two spellings";
  EXPECT_EQ(verdict({{"Host", "192.0.2.7:80"}}, "[::ffff:192.0.2.7]:8080"), "ours");
  EXPECT_EQ(verdict({}), "ours") << "HTTP/1.0, which no browser speaks";
}

// As a pool's configuration says it, without brackets and behind an address that is translated.
TEST(Browser, AnAddressOfIpv6IsOurs) {
  const BrowserRules rules{.hosts = {"fd00::6"}, .cors_origins = {}};
  for (const char* host : {"[fd00::6]:9200", "[fd00::6]", "[FD00:0::6]:1"}) {
    const Headers headers{{"Host", host}};
    EXPECT_TRUE(check_browser(rules, {&headers, "[2001:db8::1]:9200"})) << host;
  }
  for (const char* host : {"[fd00::7]:9200", "fd00:9200", "fd00", "[fd00::]:6"}) {
    const Headers headers{{"Host", host}};
    EXPECT_FALSE(check_browser(rules, {&headers, "[2001:db8::1]:9200"})) << host;
  }
}

// What a page sends whose own name was pointed at this machine, and what looks like one of ours.
TEST(Browser, HostsThatAreNot) {
  for (const std::string& host :
       {std::string("evil.example"), std::string("evil.example:8080"), std::string("localhost.evil.example"),
        std::string("notlocalhost"), std::string("127.0.0.1.evil.example"), std::string("2130706433"),
        std::string("0x7f.0.0.1"), std::string("0.0.0.0"), std::string("192.0.2.8"), std::string("[::2]"),
        std::string(""), std::string("a.llm.example"), std::string("llm.example.evil.example"),
        std::string("[evil.example]"), std::string("127.0.0.1@evil.example"), std::string(300, 'a')}) {
    EXPECT_EQ(verdict({{"Host", host}}), "host") << host;
  }
}

TEST(Browser, Origins) {
  const char* host = "localhost:8080";
  EXPECT_EQ(verdict({{"Host", host}, {"Origin", "http://localhost:8080"}}), "ours");
  EXPECT_EQ(verdict({{"Host", "llm.example"}, {"Origin", "https://llm.example"}}), "ours") << "behind a proxy with TLS";
  EXPECT_EQ(verdict({{"Host", host}, {"Origin", "https://chat.example"}}), "https://chat.example");
  EXPECT_EQ(verdict({{"Host", host}, {"Origin", "http://chat.example:3000"}}), "http://chat.example:3000");
  for (const char* origin :
       {"http://evil.example", "null", "", "http://localhost", "http://localhost:8081", "http://127.0.0.1:8080",
        "http://chat.example", "https://chat.example.evil.example", "https://chat.example:444", "ftp://localhost:8080",
        "localhost:8080", "https://a.chat.example"}) {
    EXPECT_EQ(verdict({{"Host", host}, {"Origin", origin}}), "origin") << origin;
  }
  EXPECT_EQ(verdict({{"Host", host}, {"Origin", "http://localhost:8080"}, {"Origin", "http://evil.example"}}),
            "origin");
  EXPECT_EQ(verdict({{"Host", "evil.example"}, {"Origin", "http://evil.example"}}), "host")
      << "its own origin, and yet";
}

// Programs whose windows are pages. What a page of the network cannot have is let in where everybody shows a token.
TEST(Browser, OriginsOfPrograms) {
  const auto asked = [](const BrowserRules& rules, const std::string& origin, bool token_needed) {
    const Headers headers{{"Host", "localhost:8080"}, {"Origin", origin}, {"Sec-Fetch-Site", "cross-site"}};
    return check_browser(rules, {.headers = &headers, .local_address = "127.0.0.1:8080", .token_needed = token_needed});
  };
  for (const bool token_needed : {false, true}) EXPECT_TRUE(asked(kRules, "app://obsidian.md", token_needed));
  for (const char* program : {"tauri://localhost", "vscode-webview://1f2a", "file://", "chrome-extension://abcdefgh",
                              "moz-extension://7c8a5d1e", "capacitor://localhost", "ionic://localhost"}) {
    const auto refused = asked(kRules, program, false);
    ASSERT_FALSE(refused) << program;
    EXPECT_NE(refused.error().message.find("add \"" + std::string(program) + "\" to some.origins"), std::string::npos)
        << refused.error().message;
    EXPECT_EQ(std::get<std::string>(refused.error().details.at(1).second), program);
    EXPECT_EQ(asked(kRules, program, true).value_or("refused"), program);
    BrowserRules listing = kRules;
    listing.cors_origins = {program};
    EXPECT_EQ(asked(listing, program, false).value_or("refused"), program);
  }
  for (const char* page : {"null", "http://tauri.localhost", "https://localhost", "https://evil.example",
                           "app:", "app://a b", "unknown://localhost", "*"}) {
    EXPECT_FALSE(asked(kRules, page, true)) << page;
  }
  const BrowserRules of_a_pool{.hosts = {}, .cors_origins = {}};
  const auto refused = asked(of_a_pool, "tauri://localhost", true);
  ASSERT_FALSE(refused) << "no program calls a pool";
  EXPECT_EQ(refused.error().message.find("add "), std::string::npos) << refused.error().message;
}

// What is repeated of an origin is what the configuration takes.
TEST(Browser, ARefusalRepeatsNoOtherOrigin) {
  for (const std::string& origin : {std::string("null"), std::string("app://a\" to b"),
                                    "app://" + std::string(5000, 'a'), std::string("https://chat.example/needle")}) {
    const Headers headers{{"Host", "localhost"}, {"Origin", origin}};
    const auto refused = check_browser(kRules, {&headers, "127.0.0.1:8080"});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message.find("add "), std::string::npos) << refused.error().message;
    EXPECT_LT(refused.error().message.size(), 300u);
    EXPECT_EQ(refused.error().details.size(), 1u);
  }
}

TEST(Browser, FetchMetadata) {
  for (const char* site : {"cross-site", "same-site", "anything"}) {
    EXPECT_EQ(verdict({{"Host", "localhost"}, {"Sec-Fetch-Site", site}}), "origin") << site;
    EXPECT_EQ(verdict({{"Host", "localhost"}, {"Sec-Fetch-Site", site}, {"Origin", "https://chat.example"}}),
              "https://chat.example");
  }
  for (const char* site : {"same-origin", "none"}) {
    EXPECT_EQ(verdict({{"Host", "localhost"}, {"Sec-Fetch-Site", site}}), "ours") << site;
  }
}

TEST(Browser, BodiesAreJson) {
  const auto takes = [](std::optional<std::string> type, Headers headers) {
    if (type) headers.add("Content-Type", *type);
    const auto result = check_media_type(headers);
    EXPECT_EQ(result ? ErrorCode::kInvalidParams : result.error().code, ErrorCode::kInvalidParams);
    return result.has_value();
  };
  for (const char* good :
       {"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;x"}) {
    EXPECT_TRUE(takes(good, {{"Content-Length", "2"}})) << good;
    EXPECT_TRUE(takes(good, {{"Transfer-Encoding", "chunked"}})) << good;
  }
  for (const char* bad : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                          "application/jsonp", "text/plain; application/json", "application/json, text/plain"}) {
    EXPECT_FALSE(takes(bad, {{"Content-Length", "2"}})) << bad;
  }
  EXPECT_FALSE(takes(std::nullopt, {{"Content-Length", "2"}})) << "a page can send a body without a type";
  EXPECT_FALSE(takes(std::nullopt, {{"Transfer-Encoding", "chunked"}}));
  EXPECT_FALSE(takes("text/plain", {{"Content-Type", "application/json"}, {"Content-Length", "2"}}));
  EXPECT_TRUE(takes(std::nullopt, {}));
  EXPECT_TRUE(takes(std::nullopt, {{"Content-Length", "0"}}));
  EXPECT_TRUE(takes("text/plain", {{"Content-Length", "0"}}));
}

// `curl -d` names a form's type. What a page can send of that type has the browser's name, or one of the other marks.
TEST(Browser, AFormsTypeFromCurl) {
  const Headers curl{
      {"User-Agent", "curl/8.5.0"}, {"Content-Type", "application/x-www-form-urlencoded"}, {"Content-Length", "2"}};
  EXPECT_TRUE(check_media_type(curl));
  EXPECT_FALSE(check_media_type(curl, BodyType::kForm));
  for (const char* of_browsers :
       {"Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"}) {
    Headers headers = curl;
    headers.add(of_browsers, "null");
    EXPECT_FALSE(check_media_type(headers)) << of_browsers;
  }
  Headers other = curl;
  other.set("Content-Type", "text/plain");
  EXPECT_FALSE(check_media_type(other)) << "curl says so only where it is told";
  other = curl;
  other.add("User-Agent", "Mozilla/5.0");
  EXPECT_FALSE(check_media_type(other));
  for (const char* agent :
       {"Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 curl/8.5.0", "Opera/9.80", "", "curl", "CURL/8"}) {
    other = curl;
    other.set("User-Agent", agent);
    const auto refused = check_media_type(other);
    ASSERT_FALSE(refused) << agent;
    EXPECT_NE(refused.error().message.find("curl: -H 'Content-Type: application/json'"), std::string::npos);
  }
}

// Of routes that take a file.
TEST(Browser, OrAForm) {
  const auto takes = [](std::string type) {
    return check_media_type({{"Content-Type", std::move(type)}, {"Content-Length", "2"}}, BodyType::kForm).has_value();
  };
  EXPECT_TRUE(takes("multipart/form-data; boundary=x"));
  for (const char* bad : {"application/json", "text/plain", "multipart/mixed; boundary=x"})
    EXPECT_FALSE(takes(bad)) << bad;
}

TEST(Browser, Preflights) {
  EXPECT_TRUE(is_preflight("OPTIONS", {{"Origin", "https://chat.example"}, {"Access-Control-Request-Method", "POST"}}));
  EXPECT_FALSE(is_preflight("GET", {{"Origin", "https://chat.example"}, {"Access-Control-Request-Method", "POST"}}));
  EXPECT_FALSE(is_preflight("OPTIONS", {{"Access-Control-Request-Method", "POST"}}));
  EXPECT_FALSE(is_preflight("OPTIONS", {{"Origin", "https://chat.example"}}));
  const Headers answer = preflight_headers("https://chat.example", "GET, POST", "x-title,x-stainless-os");
  EXPECT_EQ(answer.get("Access-Control-Allow-Methods"), "GET, POST");
  const std::string always = "Authorization, Content-Type, Last-Event-ID, X-Correlation-Id";
  EXPECT_EQ(answer.get("Access-Control-Allow-Headers"), always + ", x-title,x-stainless-os");
  for (const std::string& odd :
       {std::string(), std::string("a\r\nSet-Cookie: b"), std::string("*"), std::string(5000, 'a')}) {
    EXPECT_EQ(preflight_headers("https://chat.example", "GET", odd).get("Access-Control-Allow-Headers"), always);
  }
  EXPECT_EQ(cors_headers("https://chat.example").get("Access-Control-Allow-Origin"), "https://chat.example");
}

}  // namespace
}  // namespace llorch::net::http
