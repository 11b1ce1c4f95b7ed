#include "orchestratord/http/tenancy.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::http {
namespace {

using net::http::Principal;
using net::http::Role;

const Principal kOperator{.role = Role::kOperator, .name = {}, .identity = {}, .account = "token:0123"};
Principal tenant(const std::string& name) {
  return {.role = Role::kTenant, .name = name, .identity = {}, .account = name};
}

TEST(Tenancy, TheOperatorSeesAllAndATenantItsOwn) {
  for (const char* account : {"a", "b", "localhost", "token:4567", ""}) EXPECT_TRUE(owns(kOperator, account));
  EXPECT_TRUE(owns(tenant("a"), "a"));
  for (const char* other : {"b", "aa", "", "localhost", "token:0123"}) EXPECT_FALSE(owns(tenant("a"), other)) << other;
  for (const Role role : {Role::kReader, Role::kNode}) {
    EXPECT_FALSE(owns({.role = role, .name = "a", .identity = {}, .account = "a"}, "a"));
    EXPECT_FALSE(owns_id({.role = role, .name = "a", .identity = {}, .account = "a"}, "a:run"));
  }
}

// A tenant learns of no other one, and the operator whose each job is; the operator's own have no tenant.
TEST(Tenancy, OperatorsAloneAreToldWhoseAJobIs) {
  EXPECT_EQ(shown_tenant(kOperator, "a"), "a");
  for (const char* account : {"localhost", "token:4567", ""}) EXPECT_FALSE(shown_tenant(kOperator, account)) << account;
  for (const char* account : {"a", "b", "localhost"}) EXPECT_FALSE(shown_tenant(tenant("a"), account)) << account;
}

TEST(Tenancy, OperatorsAloneAskForTheJobsOfOneTenant) {
  EXPECT_FALSE(listed_account(kOperator, std::nullopt).value()) << "everybody's";
  EXPECT_EQ(listed_account(kOperator, "a").value(), "a");
  EXPECT_EQ(listed_account(tenant("a"), std::nullopt).value(), "a");
  for (const char* named : {"a", "b", "", "token:0123"}) {
    EXPECT_EQ(listed_account(tenant("a"), named).error().code, base::ErrorCode::kForbidden) << named;
  }
  const std::string too_long(65, 'a');
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("localhost"), std::string_view("token:0123"), std::string_view("a:run"),
        std::string_view("a b"), std::string_view(too_long)}) {
    EXPECT_EQ(listed_account(kOperator, bad).error().code, base::ErrorCode::kInvalidParams) << bad;
  }
}

// No two callers keep one id under the same name, whatever they choose.
TEST(Tenancy, KeptIdsAreApart) {
  EXPECT_EQ(kept_id(tenant("a"), "run"), "a:run");
  EXPECT_EQ(kept_id(kOperator, "run"), "run");
  EXPECT_EQ(shown_id(tenant("a"), "a:run"), "run");
  EXPECT_EQ(shown_id(kOperator, "a:run"), "a:run");
  EXPECT_EQ(shown_id(tenant("a"), "b:run"), "b:run") << "no more than it was given";
  EXPECT_TRUE(owns_id(tenant("a"), "a:run"));
  for (const char* other : {"run", "b:run", "aa:run", "a", ":run", ""})
    EXPECT_FALSE(owns_id(tenant("a"), other)) << other;
  for (const char* good : {"run", "a:run"}) EXPECT_TRUE(is_valid_kept_id(good)) << good;
  for (const char* bad : {"", ":", "a:", ":run", "a:b:c", "a b", "a/b"}) EXPECT_FALSE(is_valid_kept_id(bad)) << bad;
}

TEST(Tenancy, JobsOfTasks) {
  const std::string uuid = "01234567-89ab-4cde-8f01-23456789abcd";
  EXPECT_EQ(job_id_of_task(kOperator, uuid).value, uuid);
  const base::JobId a = job_id_of_task(tenant("a"), uuid);
  EXPECT_TRUE(base::is_uuid(a.value)) << a.value;
  EXPECT_EQ(a, job_id_of_task(tenant("a"), uuid)) << "a repeat names the same job";
  EXPECT_NE(a.value, uuid);
  EXPECT_NE(a, job_id_of_task(tenant("b"), uuid));
  EXPECT_NE(job_id_of_task(tenant("b"), a.value), a);
}

TEST(Tenancy, ErrorsNameTheIdThatTheCallerKnows) {
  const base::Error error = base::Error{base::ErrorCode::kBudgetExceeded, "", {}}
                                .with("session_id", "a:agent")
                                .with("limit", std::int64_t{3});
  EXPECT_EQ(shown(tenant("a"), error).details[0].second, base::DetailValue("agent"));
  EXPECT_EQ(shown(kOperator, error).details[0].second, base::DetailValue("a:agent"));
}

}  // namespace
}  // namespace llorch::orchestratord::http
