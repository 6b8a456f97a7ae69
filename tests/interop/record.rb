# Records what this Sidekiq writes to Redis, byte for byte, one file a case in golden/.
#
#   REDIS_URL=redis://127.0.0.1:6379/15 ruby record.rb [case ...]
#
# The database must be empty and is emptied between the cases. A file holds the call, the key that it wrote, the raw
# strings in the order that Redis gives them (a list: newest first) and, for sorted sets, their scores.

require_relative "worker"
require "sidekiq/api"
require "sidekiq/fetch"
require "sidekiq/processor"

GOLDEN = ENV.fetch("INTEROP_GOLDEN", File.join(__dir__, "golden"))
CASES = {}

# A case: its block makes the call and returns the key to record. `call` is what a reader sees.
def golden(name, call, &block)
  CASES[name] = [call, block]
end

# Takes the next job of a queue and runs it as a worker thread would, retry and burial included.
def work_one(queue = "default")
  raw = Sidekiq.redis { |conn| conn.rpop("queue:#{queue}") } or raise "no job in #{queue}"
  manager = Struct.new(:options).new(Sidekiq.options)
  processor = Sidekiq::Processor.new(manager, Sidekiq.options.merge(fetch: nil))
  processor.send(:process, Sidekiq::BasicFetch::UnitOfWork.new("queue:#{queue}", raw))
rescue RuntimeError => e
  raise unless e.message == FAILURE_MESSAGE || e.is_a?(Sidekiq::JobRetry::Handled)
end

# Lets the scheduler move what waits in a set, now.
def promote(set)
  Sidekiq.redis do |conn|
    conn.zrange(set, 0, -1).each { |member| conn.zadd(set, 1.0, member) }
  end
  Sidekiq::Scheduled::Enq.new.enqueue_jobs
end

AT = 2_000_000_000
CONTROLS = "\"\\/\b\f\n\r\t\u0000\u0001\u001f\u007f\u0080\u2028\u2029<>&'"

golden("plain", 'Recorder.perform_async(1, "two")') { Recorder.perform_async(1, "two") && "queue:default" }
golden("no_arguments", "Recorder.perform_async") { Recorder.perform_async && "queue:default" }
golden("values", 'Recorder.perform_async(nil, true, false, 0, -1, "", [], {})') do
  Recorder.perform_async(nil, true, false, 0, -1, "", [], {}) && "queue:default"
end
golden("class_options", 'Tagged.perform_async("é", 1.0, nil): queue low, retry 5, tags') do
  Tagged.perform_async("é", 1.0, nil) && "queue:low"
end
golden("set_options", 'Recorder.set(queue: "high", retry: 3, tags: ["x"], backtrace: 5).perform_async(1)') do
  Recorder.set(queue: "high", retry: 3, tags: ["x"], backtrace: 5).perform_async(1) && "queue:high"
end
golden("unknown_option", 'Recorder.set(custom: {"a" => [1]}).perform_async(1)') do
  Recorder.set(custom: {"a" => [1]}).perform_async(1) && "queue:default"
end
golden("backtrace_option", "WithBacktrace.perform_async(1): backtrace true") do
  WithBacktrace.perform_async(1) && "queue:default"
end
golden("retry_zero", "DiesAtOnce.perform_async(1): retry 0") { DiesAtOnce.perform_async(1) && "queue:default" }
golden("retry_false", "NeverRetried.perform_async(1): retry false") { NeverRetried.perform_async(1) && "queue:default" }

golden("unicode", 'Recorder.perform_async("é", "日本語", "😀", "e\u0301", "\u200f\u05d0", "\ufeff", "\ufffd")') do
  Recorder.perform_async("é", "日本語", "😀", "e\u0301", "\u200f\u05d0", "\ufeff", "\ufffd") && "queue:default"
end
golden("escapes", "Recorder.perform_async(#{CONTROLS.dump}, {same => same})") do
  Recorder.perform_async(CONTROLS, {CONTROLS => CONTROLS}) && "queue:default"
end
golden("floats", "Recorder.perform_async(1.0, -0.0, 0.1, 3.141592653589793, 0.0001, 123456789012345.6, 1.5e300)") do
  Recorder.perform_async(1.0, -0.0, 0.1, 3.141592653589793, 0.0001, 123_456_789_012_345.6, 1.5e300) && "queue:default"
end
golden(
  "floats_exponent",
  "Recorder.perform_async(1.0e15, 1.0e16, 1.0e-05, 5.0e-324): other text than Python's, same value"
) do
  Recorder.perform_async(1.0e15, 1.0e16, 1.0e-05, 5.0e-324) && "queue:default"
end
golden("big_integers", "Recorder.perform_async(2**53, 2**63, 2**64, -(2**63) - 1, 10**40)") do
  Recorder.perform_async(2**53, 2**63, 2**64, -(2**63) - 1, 10**40) && "queue:default"
end
golden(
  "nested",
  'Recorder.perform_async({"z" => [1, {"a" => nil, "" => [[]]}], "b" => {"c" => {}}}, [[1], [2, [3]]])'
) do
  Recorder.perform_async({"z" => [1, {"a" => nil, "" => [[]]}], "b" => {"c" => {}}}, [[1], [2, [3]]]) && "queue:default"
end
golden("deepest", "Recorder.perform_async of 98 arrays in each other: with args and the job 100 levels") do
  Recorder.perform_async(98.times.reduce(nil) { |inner, _| [inner].compact }) && "queue:default"
end

golden("client_push", 'Sidekiq::Client.push("class" => "Recorder", "args" => [2])') do
  Sidekiq::Client.push("class" => "Recorder", "args" => [2]) && "queue:default"
end
golden(
  "client_push_fields",
  'Sidekiq::Client.push with jid, queue, retry, tags, created_at 123 and an unknown field'
) do
  Sidekiq::Client.push(
    "class" => "Recorder", "args" => [2], "jid" => "my-own-jid", "queue" => "high", "retry" => 7, "tags" => ["t"],
    "created_at" => 123, "custom" => {"k" => "v"}
  )
  "queue:high"
end
golden("client_push_at", "Sidekiq::Client.push with at #{AT} (integer)") do
  Sidekiq::Client.push("class" => "Recorder", "args" => [2], "at" => AT) && "schedule"
end
golden("client_push_at_float", "Sidekiq::Client.push with at #{AT}.25") do
  Sidekiq::Client.push("class" => "Recorder", "args" => [2], "at" => AT + 0.25) && "schedule"
end
golden("perform_in", 'Recorder.perform_in(3600, "later")') { Recorder.perform_in(3600, "later") && "schedule" }
golden("perform_at", "Tagged.perform_at(#{AT}, 1)") { Tagged.perform_at(AT, 1) && "schedule" }
golden("perform_in_past", "Recorder.perform_in(-5, 1)") { Recorder.perform_in(-5, 1) && "queue:default" }
golden("set_wait", 'Recorder.set(wait: 3600, queue: "high").perform_async(1)') do
  Recorder.set(wait: 3600, queue: "high").perform_async(1) && "schedule"
end
golden("perform_bulk", "Recorder.perform_bulk([[1], [2], [3]])") do
  Recorder.perform_bulk([[1], [2], [3]]) && "queue:default"
end
golden("push_bulk_at", "Sidekiq::Client.push_bulk of [[1], [2]] with at [#{AT}, #{AT + 1}.5]") do
  Sidekiq::Client.push_bulk("class" => "Recorder", "args" => [[1], [2]], "at" => [AT, AT + 1.5]) && "schedule"
end

golden("promoted", "Recorder.perform_in(3600, 1), moved by the scheduler") do
  Recorder.perform_in(3600, 1)
  promote("schedule")
  "queue:default"
end
golden("first_failure", "Failing.perform_async(1), failed once") do
  Failing.perform_async(1)
  work_one
  "retry"
end
golden("second_failure", "Failing.perform_async(1), failed, moved by the scheduler, failed again") do
  Failing.perform_async(1)
  work_one
  promote("retry")
  work_one
  "retry"
end
golden("retry_promoted", "Failing.perform_async(1), failed once, moved by the scheduler") do
  Failing.perform_async(1)
  work_one
  promote("retry")
  "queue:default"
end
golden("retry_queue", 'Failing.set(retry_queue: "low").perform_async(1), failed once') do
  Failing.set(retry_queue: "low").perform_async(1)
  work_one
  "retry"
end
golden("backtrace_all", "WithBacktrace.perform_async(1), failed once") do
  WithBacktrace.perform_async(1)
  work_one
  "retry"
end
golden("backtrace_three", "WithThreeLines.perform_async(1), failed once") do
  WithThreeLines.perform_async(1)
  work_one
  "retry"
end
golden("dead_at_once", "DiesAtOnce.perform_async(1), failed once") do
  DiesAtOnce.perform_async(1)
  work_one
  "dead"
end
golden("dead_after_retry", "Failing.set(retry: 1).perform_async(1), failed twice") do
  Failing.set(retry: 1).perform_async(1)
  work_one
  promote("retry")
  work_one
  "dead"
end
golden("dead_malformed", 'the string {"class": no json, fetched by a worker') do
  Sidekiq.redis { |conn| conn.lpush("queue:default", '{"class": no json') }
  work_one
  "dead"
end
golden("killed_by_hand", "Failing.perform_async(1), failed once, then RetrySet#kill") do
  Failing.perform_async(1)
  work_one
  Sidekiq::RetrySet.new.first.kill
  "dead"
end
golden("retried_by_hand", "Failing.perform_async(1), failed once, then RetrySet#retry: retry_count one less") do
  Failing.perform_async(1)
  work_one
  Sidekiq::RetrySet.new.first.retry
  "queue:default"
end

def members(key)
  Sidekiq.redis do |conn|
    return [conn.lrange(key, 0, -1), nil] if conn.type(key) == "list"
    conn.zrange(key, 0, -1, with_scores: true).transpose
  end
end

def record(name)
  call, block = CASES.fetch(name)
  key = block.call
  raw, scores = members(key)
  found = {
    "case" => name, "call" => call, "sidekiq" => Sidekiq::VERSION, "key" => key, "raw" => raw, "scores" => scores
  }
  File.write(File.join(GOLDEN, "#{name}.json"), JSON.generate(found.compact, JSON::State.new(
    ascii_only: true, indent: "  ", space: " ", object_nl: "\n", array_nl: "\n"
  )) + "\n")
ensure
  Sidekiq.redis(&:flushdb)
end

Sidekiq.logger.level = Logger::FATAL
abort "the database of REDIS_URL is not empty" unless Sidekiq.redis(&:dbsize).zero?
(ARGV.empty? ? CASES.keys : ARGV).each { |name| record(name) }
