#pragma once
// /v1/messages/batches: requests as jobs, and their answers together. deferred::BatchRunner runs them.
#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "orchestratord/http/deferred/batch_runner.h"

namespace llorch::orchestratord::http::anthropic {

// REQUIRES: `context` and `runner` outlive it, the context has blobs; every member is called on the thread of kept files.
class MessageBatches final : public deferred::BatchForm {
 public:
  static constexpr std::string_view kKind = "message_batch";

  MessageBatches(const Context& context, deferred::BatchRunner& runner) : context_(context), runner_(runner) {
    runner_.add(*this);
  }

  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void results(const net::Request& request, const net::ExchangePtr& exchange);
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);

  // Erases what a crash left: requests of a batch that has ended, and both blobs of one that was never made.
  void remove_orphans() const;

  std::string_view kind() const override { return kKind; }
  deferred::BatchBlobs blobs_of(const std::string& id, const boost::json::object& facts) const override;
  std::optional<deferred::BatchLine> line_of(const boost::json::object& facts, std::string_view text) const override;
  base::Result<tasks::DeferredJobPtr> job_of(const boost::json::object& facts,
                                             deferred::BatchRequest request) const override;
  net::Response refusal(const base::Error& error, const base::CorrelationId& correlation_id) const override;
  std::string result_line(std::string_view custom_id, std::string_view name,
                          const net::Response& answer) const override;
  std::optional<deferred::BatchResult> result_of(std::string_view line) const override;
  std::string unanswered_line(std::string_view custom_id, bool cancelled) const override;
  base::Result<> reveal(const std::string& id, boost::json::object& facts, std::int64_t expires_unix_ms) override;
  void tell(const deferred::BatchLosses&, boost::json::object&) const override {}
  void ended(const std::string& id) override;

 private:
  std::string view(const store::blobs::Blob& blob) const;
  const store::blobs::Blob* find(const net::Request& request, const net::ExchangePtr& exchange) const;
  base::Result<> keep(const std::string& id, const net::http::Principal& caller, std::string_view body);
  void erase_parts(const std::string& id) const;

  const Context& context_;
  deferred::BatchRunner& runner_;
};

}  // namespace llorch::orchestratord::http::anthropic
