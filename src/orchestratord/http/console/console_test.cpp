#include "orchestratord/http/console/console.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "orchestratord/http/console/page_files.h"

namespace llorch::orchestratord::http::console {
namespace {

std::string get(const std::string& path) {
  const auto response = answer(path, std::nullopt);
  EXPECT_TRUE(response) << path;
  return response ? response->body : "";
}

// What a file makes a browser load: addresses in the page, modules in scripts.
std::set<std::string> loaded_by(const PageFile& file) {
  static const std::regex kAddress(R"re((?:src|href)="([^"#]+)")re");
  static const std::regex kModule(R"re((?:(?:^|\n)import [^;"]*|\bimport\()"([^"]+)")re");
  const bool is_page = file.path.ends_with(".html");
  if (!is_page && !file.path.ends_with(".js")) return {};
  const std::string text(file.bytes);
  std::set<std::string> out;
  const std::regex& pattern = is_page ? kAddress : kModule;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) out.insert((*it)[1]);
  return out;
}

TEST(Console, EveryFileIsServedAndThePageIsAtTheRoot) {
  ASSERT_GT(page_files().size(), 10u);
  for (const PageFile& file : page_files()) EXPECT_EQ(get("/console/" + std::string(file.path)), file.bytes);
  EXPECT_EQ(get("/"), get("/console/index.html"));
}

TEST(Console, WhatIsNoFileIsNotFound) {
  for (const char* path : {"/console/", "/console", "/console/views", "/console/../secret", "/console/%2e%2e/x",
                           "/index.html", "", "/console/app.js?x", "/console//app.js"}) {
    const auto response = answer(path, std::nullopt);
    ASSERT_FALSE(response) << path;
    EXPECT_EQ(response.error().code, base::ErrorCode::kNotFound) << path;
  }
}

// Apps for Ollama compare what they get with "Ollama is running"; those written in Dart, Go or C# send no Accept.
TEST(Console, ThePageIsForBrowsers) {
  EXPECT_TRUE(is_asked_for({{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}}));
  EXPECT_FALSE(is_asked_for({}));
  EXPECT_FALSE(is_asked_for({{"Accept", "*/*"}}));
}

TEST(Console, TheSameBytesAreNotSentAgain) {
  const auto first = answer("/console/app.js", std::nullopt);
  ASSERT_TRUE(first);
  const std::string etag(first->headers.get("ETag").value());
  EXPECT_EQ(etag.size(), 34u);
  const auto again = answer("/console/app.js", etag);
  EXPECT_EQ(again->status, 304);
  EXPECT_TRUE(again->body.empty());
  EXPECT_EQ(again->headers.get("ETag"), etag);
  EXPECT_EQ(answer("/", etag)->status, 200) << "of another file";
}

TEST(Console, EveryAnswerSaysWhatThePageMayDo) {
  for (const PageFile& file : page_files()) {
    const auto response = answer("/console/" + std::string(file.path), std::nullopt);
    EXPECT_EQ(
        response->headers.get("Content-Security-Policy"),
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    EXPECT_EQ(response->headers.get("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(response->headers.get("Cache-Control"), "no-cache");
  }
  EXPECT_EQ(answer("/", std::nullopt)->headers.get("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(answer("/console/app.js", std::nullopt)->headers.get("Content-Type"), "text/javascript; charset=utf-8");
}

// Every address is one of these files, and every file is reached from the page.
TEST(Console, ThePageLoadsItsOwnFilesAndNothingElse) {
  std::set<std::string> reached{"/console/index.html"};
  for (const PageFile& file : page_files()) {
    const std::string here = "/console/" + std::string(file.path);
    for (std::string target : loaded_by(file)) {
      if (target.starts_with("./")) target = here.substr(0, here.rfind('/')) + target.substr(1);
      if (target.starts_with("../")) {
        const std::string directory = here.substr(0, here.rfind('/'));
        target = directory.substr(0, directory.rfind('/')) + target.substr(2);
      }
      EXPECT_TRUE(answer(target, std::nullopt)) << file.path << " loads " << target;
      reached.insert(target);
    }
  }
  EXPECT_EQ(reached.size(), page_files().size()) << "a file that nothing loads";
}

// Text is text: nothing of a model or a log becomes markup, and nothing is inline, which the policy would refuse.
TEST(Console, NothingIsInlineAndNoTextBecomesMarkup) {
  for (const PageFile& file : page_files()) {
    const std::string text(file.bytes);
    for (const char* sink : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                             "DOMParser", "createContextualFragment", "srcdoc", "javascript:", "localStorage.token"}) {
      EXPECT_EQ(text.find(sink), std::string::npos) << file.path << ": " << sink;
    }
    if (!file.path.ends_with(".html")) continue;
    EXPECT_FALSE(std::regex_search(text, std::regex(R"re(\son\w+=|\sstyle=|<style|<script(?![^>]* src=))re")))
        << file.path;
  }
}

TEST(Console, IsSmall) {
  std::size_t bytes = 0;
  for (const PageFile& file : page_files()) bytes += file.bytes.size();
  EXPECT_LT(bytes, 150'000u);
}

}  // namespace
}  // namespace llorch::orchestratord::http::console
