#include "net/http/principal.h"

namespace llorch::net::http {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kReader: return "reader";
    case Role::kTenant: return "tenant";
    case Role::kNode: return "node";
    case Role::kOperator: return "operator";
  }
  return "unknown";
}

std::string_view name_of(Scope scope) {
  switch (scope) {
    case Scope::kOpen: return "open";
    case Scope::kPublic: return "public";
    case Scope::kReader: return "reader";
    case Scope::kTenant: return "tenant";
    case Scope::kNode: return "node";
    case Scope::kOperator: return "operator";
  }
  return "unknown";
}

bool permits(Scope scope, Role role) {
  switch (scope) {
    case Scope::kOpen:
    case Scope::kPublic: return true;
    case Scope::kReader: return role == Role::kReader || role == Role::kOperator;
    case Scope::kTenant: return role == Role::kTenant || role == Role::kOperator;
    case Scope::kNode: return role == Role::kNode;
    case Scope::kOperator: return role == Role::kOperator;
  }
  return false;
}

}  // namespace llorch::net::http
