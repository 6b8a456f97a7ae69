# A real Sidekiq client and its data API, driven by one JSON command a line on stdin; one JSON answer a line on stdout.
#
# Command: {"op": "<name>", ...fields}. Answer: {"ok": <value>} or {"error": "<class>: <message>"}. Ends with stdin.

require_relative "worker"
require "sidekiq/api"

SETS = {"retry" => Sidekiq::RetrySet, "schedule" => Sidekiq::ScheduledSet, "dead" => Sidekiq::DeadSet}.freeze

def job_class(command)
  Object.const_get(command.fetch("class"))
end

def setter(command)
  job_class(command).set((command["options"] || {}).dup)
end

def stamp(time)
  time&.to_f
end

def row(job)
  {
    "jid" => job.jid, "class" => job.display_class, "args" => job.display_args, "queue" => job.queue,
    "tags" => job.tags,
    "created_at" => stamp(job.created_at), "enqueued_at" => stamp(job.enqueued_at), "latency" => job.latency,
    "error_class" => job["error_class"], "error_message" => job["error_message"], "backtrace" => job.error_backtrace,
    "retry_count" => job["retry_count"], "raw" => job.value
  }
end

def entry(command)
  SETS.fetch(command.fetch("set")).new.find_job(command.fetch("jid")) || raise(KeyError, "no such job")
end

OPERATIONS = {
  "version" => ->(_) { Sidekiq::VERSION },
  "push" => ->(c) { Sidekiq::Client.push(c.fetch("item")) },
  "push_bulk" => ->(c) { Sidekiq::Client.push_bulk(c.fetch("item")) },
  "perform_async" => ->(c) { setter(c).perform_async(*c.fetch("args")) },
  "perform_in" => ->(c) { job_class(c).perform_in(c.fetch("interval"), *c.fetch("args")) },
  "perform_at" => ->(c) { job_class(c).perform_at(c.fetch("at"), *c.fetch("args")) },
  "perform_bulk" => ->(c) { setter(c).perform_bulk(c.fetch("args")) },
  "promote" => ->(_) { Sidekiq::Scheduled::Enq.new.enqueue_jobs && nil },
  "queue" => ->(c) { Sidekiq::Queue.new(c.fetch("name")).map { |job| row(job) } },
  "latency" => ->(c) { Sidekiq::Queue.new(c.fetch("name")).latency },
  "queues" => ->(_) { Sidekiq::Stats::Queues.new.lengths },
  "entries" => ->(c) { SETS.fetch(c.fetch("set")).new.map { |job| row(job).merge("score" => job.score) } },
  "find" => ->(c) { entry(c).then { |job| row(job).merge("score" => job.score) } },
  "retry" => ->(c) { entry(c).retry && nil },
  "add_to_queue" => ->(c) { entry(c).add_to_queue && nil },
  "kill" => ->(c) { entry(c).kill && nil },
  "delete" => ->(c) { entry(c).delete && nil },
  "reschedule" => ->(c) { entry(c).reschedule(c.fetch("at")) },
  "processes" => ->(_) { Sidekiq::ProcessSet.new(false).map { |process| process.instance_variable_get(:@attribs) } },
  "signal" => ->(c) { Sidekiq::Process.new("identity" => c.fetch("identity")).public_send(c.fetch("verb")) && nil },
  "work" => ->(_) { Sidekiq::Workers.new.map { |name, tid, work| {"process" => name, "tid" => tid, "work" => work} } },
  "stats" => lambda { |_|
    stats = Sidekiq::Stats.new
    stats.fetch_stats!
    stats.instance_variable_get(:@stats)
  }
}.freeze

def answer(line)
  command = JSON.parse(line)
  {"ok" => OPERATIONS.fetch(command.fetch("op")).call(command)}
rescue => e
  {"error" => "#{e.class}: #{e.message}"}
end

# Answers go to the original stdout, which nothing else may write to.
answers = $stdout.dup
answers.sync = true
$stdout.reopen($stderr)
Sidekiq.logger.level = Logger::WARN
$stdin.each_line { |line| answers.puts(JSON.generate(answer(line))) }
