#include "orchestratord/http/deferred/owned_blobs.h"

#include "orchestratord/http/tenancy.h"

namespace llorch::orchestratord::http::deferred {

using store::blobs::Blob;

const Blob* find_owned(const Context& context, std::string_view kind, const std::string& id,
                       const net::http::Principal& caller) {
  const Blob* blob = context.blobs == nullptr ? nullptr : context.blobs->find(id);
  return blob != nullptr && blob->facts.kind == kind && owns(caller, blob->facts.tenant_id) ? blob : nullptr;
}

std::vector<const Blob*> list_owned(const Context& context, std::string_view kind, const net::http::Principal& caller) {
  if (is_tenant(caller)) return context.blobs->list(kind, caller.account);
  std::vector<const Blob*> out = context.blobs->list(kind);
  std::erase_if(out, [&](const Blob* blob) { return !owns(caller, blob->facts.tenant_id); });
  return out;
}

std::vector<std::string> ids_of(const std::vector<const Blob*>& blobs) {
  std::vector<std::string> out;
  for (const Blob* blob : blobs) out.push_back(blob->id);
  return out;
}

}  // namespace llorch::orchestratord::http::deferred
