#pragma once
// Whose jobs and sessions are whose. Pure.
//
// A tenant chooses ids of tasks and sessions as it likes, and so does every other one. Inside of orchestratord, in memory and
// in the store, such an id stands behind the name of its tenant ("research:run-1"), so that ids of two tenants are never one.
// The operator's ids stand alone. A tenant is shown its own ids as it chose them, the operator all of them as they are kept.
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/id.h"
#include "base/result.h"
#include "net/http/principal.h"

namespace llorch::orchestratord::http {

// Whether the caller is one of the configured tenants.
bool is_tenant(const net::http::Principal& caller);
// Whether the caller may see and end what belongs to `tenant_id`, the account that a job was submitted from.
bool owns(const net::http::Principal& caller, std::string_view tenant_id);
// The tenant behind `account` where the caller may know it: operators alone. Absent also where no tenant is behind it.
std::optional<std::string> shown_tenant(const net::http::Principal& caller, const std::string& account);
// The account whose jobs alone a list shows; absent: it shows everybody's. `named` is the tenant that the caller asks for.
// FORBIDDEN: only operators ask for one. INVALID_PARAMS: it is no id of a tenant.
base::Result<std::optional<std::string>> listed_account(const net::http::Principal& caller,
                                                        std::optional<std::string_view> named);

// The id of a task or a session as it is kept, and back.
std::string kept_id(const net::http::Principal& caller, std::string_view id);
std::string shown_id(const net::http::Principal& caller, std::string_view kept);
// Whether the caller may see what is kept under this id.
bool owns_id(const net::http::Principal& caller, std::string_view kept);
// Whether `kept` may name a session: an identifier, behind the name of a tenant or alone.
bool is_valid_kept_id(std::string_view kept);

// The job of a task whose id is a UUID: the operator's has the same id. A tenant's has one that nobody else can choose, so
// that no tenant takes, or learns of, the id of another one's job.
base::JobId job_id_of_task(const net::http::Principal& caller, std::string_view task_id);

// A UUID of version 8: its bits are those of a hash of `name`.
std::string uuid_of_name(std::string_view name);

// An error with the session's id as the caller knows it.
base::Error shown(const net::http::Principal& caller, base::Error error);

}  // namespace llorch::orchestratord::http
