#include "pool_managerd/provisioner/web/egress.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

namespace llorch::pool_managerd::provisioner {
namespace {

using base::ErrorCode;

bool is_public(const char* text) {
  sockaddr_storage storage{};
  if (auto* v4 = reinterpret_cast<sockaddr_in*>(&storage); inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    EXPECT_EQ(inet_pton(AF_INET6, text, &v6->sin6_addr), 1) << text;
    v6->sin6_family = AF_INET6;
  }
  // As libcurl hands it over: long enough for its family.
  return web::is_public(reinterpret_cast<const sockaddr&>(storage));
}

TEST(Egress, PrivateAddresses) {
  for (const char* address : {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
                              "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1",
                              "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "ff02::1"}) {
    EXPECT_FALSE(is_public(address)) << address;
  }
  for (const char* address : {"1.1.1.1", "172.32.0.1", "192.167.0.1", "2606:4700::1111", "::ffff:1.1.1.1"}) {
    EXPECT_TRUE(is_public(address)) << address;
  }
}

// ORCH-3080, ORCH-3206
TEST(Egress, Hosts) {
  const auto allows = [](const web::EgressPolicy& policy, const std::string& url) {
    const auto address = web::address_of(url);
    return address && web::check_egress(policy, *address).has_value();
  };
  EXPECT_FALSE(allows({.enabled = false}, "https://huggingface.co/x"));
  const web::EgressPolicy any{.enabled = true, .allowed_hosts = {}};
  EXPECT_TRUE(allows(any, "https://huggingface.co/x"));
  EXPECT_FALSE(allows(any, "http://huggingface.co/x"));
  EXPECT_FALSE(allows(any, "https://user:word@huggingface.co/x"));
  EXPECT_FALSE(allows(any, "file:///etc/passwd"));
  const web::EgressPolicy some{.enabled = true, .allowed_hosts = {"huggingface.co", ".hf.co", "10.0.0.1"}};
  EXPECT_TRUE(allows(some, "https://HuggingFace.co/x"));
  EXPECT_TRUE(allows(some, "https://cdn-lfs.hf.co/x"));
  EXPECT_TRUE(allows(some, "http://10.0.0.1:9000/x"));
  EXPECT_FALSE(allows(some, "https://hf.co.evil.example/x"));
  EXPECT_FALSE(allows(some, "https://nothuggingface.co/x"));
}

TEST(Egress, WhatIsToldOfAUrl) {
  EXPECT_EQ(web::without_query("https://h/a?token=b#c"), "https://h/a");
  EXPECT_EQ(web::resolve_url("https://h/simple/p/", "../../files/w.whl").value(), "https://h/files/w.whl");
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
