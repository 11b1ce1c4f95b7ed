#include "orchestratord/http/tenancy.h"

#include <fmt/core.h>

#include <variant>

#include "base/sha256.h"
#include "orchestratord/core/sessions/quota.h"
#include "orchestratord/core/sessions/session.h"

namespace llorch::orchestratord::http {
namespace {

using net::http::Principal;
using net::http::Role;

constexpr char kSeparator = core::sessions::kTenantSeparator;

}  // namespace

bool is_tenant(const Principal& caller) { return caller.role == Role::kTenant; }

bool owns(const Principal& caller, std::string_view tenant_id) {
  return caller.role == Role::kOperator || (is_tenant(caller) && caller.account == tenant_id);
}

std::optional<std::string> shown_tenant(const Principal& caller, const std::string& account) {
  std::string tenant = caller.role == Role::kOperator ? core::sessions::tenant_of(account) : std::string();
  if (tenant.empty()) return std::nullopt;
  return tenant;
}

base::Result<std::optional<std::string>> listed_account(const Principal& caller,
                                                        std::optional<std::string_view> named) {
  const bool is_operator = caller.role == Role::kOperator;
  if (!named) return is_operator ? std::nullopt : std::optional(caller.account);
  std::string account(*named);
  if (!is_operator) {
    return base::fail(base::Error{
        base::ErrorCode::kForbidden, "only an operator asks for the jobs of one tenant; leave tenant out", {}}
                          .with("field", "tenant")
                          .with("role", std::string(net::http::name_of(caller.role))));
  }
  if (account.size() > 64 || core::sessions::tenant_of(account).empty()) {
    return base::fail(base::Error{base::ErrorCode::kInvalidParams, "tenant is an id of orchestratord.tenants[]", {}}
                          .with("field", "tenant")
                          .with("reason", "charset"));
  }
  return account;
}

std::string kept_id(const Principal& caller, std::string_view id) {
  return is_tenant(caller) ? fmt::format("{}{}{}", caller.name, kSeparator, id) : std::string(id);
}

std::string shown_id(const Principal& caller, std::string_view kept) {
  return std::string(is_tenant(caller) && owns_id(caller, kept) ? kept.substr(caller.name.size() + 1) : kept);
}

bool owns_id(const Principal& caller, std::string_view kept) {
  if (caller.role == Role::kOperator) return true;
  const std::size_t end = kept.find(kSeparator);
  return is_tenant(caller) && end != std::string_view::npos && kept.substr(0, end) == caller.name;
}

bool is_valid_kept_id(std::string_view kept) {
  const std::size_t end = kept.find(kSeparator);
  if (end == std::string_view::npos) return base::is_valid_identifier(kept);
  return base::is_valid_identifier(kept.substr(0, end)) && base::is_valid_identifier(kept.substr(end + 1));
}

base::JobId job_id_of_task(const Principal& caller, std::string_view task_id) {
  if (!is_tenant(caller)) return base::JobId(std::string(task_id));
  return base::JobId(uuid_of_name("llama-orch job of task " + kept_id(caller, task_id)));
}

std::string uuid_of_name(std::string_view name) {
  std::string hex = base::to_hex(base::sha256(name));
  hex[12] = '8';
  hex[16] = '8';
  const std::string_view h = hex;
  return fmt::format("{}-{}-{}-{}-{}", h.substr(0, 8), h.substr(8, 4), h.substr(12, 4), h.substr(16, 4),
                     h.substr(20, 12));
}

base::Error shown(const Principal& caller, base::Error error) {
  for (auto& [key, value] : error.details) {
    auto* text = std::get_if<std::string>(&value);
    if (key == "session_id" && text != nullptr) *text = shown_id(caller, *text);
  }
  return error;
}

}  // namespace llorch::orchestratord::http
