#pragma once
// /v2/pools/{id}/drain, reload, purge and health: an operator's levers.
#include <memory>
#include <string>

#include "orchestratord/http/context.h"
#include "orchestratord/http/preloads.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` and `preloads` outlive it.
class PoolControl {
 public:
  PoolControl(const Context& context, const Preloads& preloads) : context_(context), preloads_(preloads) {}

  // 202 once the drain is on disk.
  void drain(const net::Request& request, const net::ExchangePtr& exchange);
  void undrain(const net::Request& request, const net::ExchangePtr& exchange);
  // Answers 202 when the order is on disk; the pool's health shows how far it is. A pool must have described the model.
  void reload(const net::Request& request, const net::ExchangePtr& exchange);
  void purge(const net::Request& request, const net::ExchangePtr& exchange);
  void health(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  struct Purging;
  // Looks for what is left of `purging->names`, then asks the core.
  void purge(const std::shared_ptr<Purging>& purging);
  void purge_reference(Purging& purging, std::string model_ref) const;
  template <class Event>
  void ask(Event event, int http_status, const net::ExchangePtr& exchange);

  const Context& context_;
  const Preloads& preloads_;
};

}  // namespace llorch::orchestratord::http
