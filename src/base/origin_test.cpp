#include "base/origin.h"

#include <gtest/gtest.h>

#include <string>

namespace llorch::base {
namespace {

TEST(Origin, OfPagesAndOfPrograms) {
  for (const char* page : {"https://chat.example", "http://chat.example:3000", "http://tauri.localhost",
                           "https://localhost", "http://[::1]:3000"}) {
    EXPECT_TRUE(is_origin(page)) << page;
    EXPECT_FALSE(is_origin_of_a_program(page)) << page << ": a server can send such a page";
  }
  for (const char* program :
       {"app://obsidian.md", "app://-", "tauri://localhost", "capacitor://localhost", "ionic://localhost",
        "vscode-webview://1f2a0b3c", "vscode-file://vscode-app", "file://",
        "chrome-extension://abcdefghijklmnopabcdefghijklmnop", "safari-web-extension://6F3B9A10-0B6E",
        "moz-extension://7c8a5d1e-0b6e-4a8e-9d0f-3b1f2a0b3c4d"}) {
    EXPECT_TRUE(is_origin(program)) << program;
    EXPECT_TRUE(is_origin_of_a_program(program)) << program;
  }
}

TEST(Origin, WhatSaysNotWhoItIs) {
  for (const std::string& none : {std::string(),
                                  std::string("null"),
                                  std::string("*"),
                                  std::string("chat.example"),
                                  std::string("file:///"),
                                  std::string("file:///etc"),
                                  std::string("https://"),
                                  std::string("://x"),
                                  std::string("https:/x"),
                                  std::string("https://*.example"),
                                  std::string("https://chat.example/"),
                                  std::string("https://u@chat.example"),
                                  std::string("https://chat.example?x"),
                                  std::string("app://a b"),
                                  std::string("app://a,app://b"),
                                  std::string("app://a\"b"),
                                  std::string("app://a\nb"),
                                  std::string("app://\xc3\xa9"),
                                  std::string("App://obsidian.md"),
                                  "app://" + std::string(300, 'a')}) {
    EXPECT_FALSE(is_origin(none)) << none;
    EXPECT_FALSE(is_origin_of_a_program(none)) << none;
  }
}

}  // namespace
}  // namespace llorch::base
