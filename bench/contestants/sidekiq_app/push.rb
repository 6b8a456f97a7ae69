# frozen_string_literal: true

# The process that loads a queue for Sidekiq: `ruby push.rb JOB COUNT MODE`, `bench/push.py` in Ruby.

require_relative "workload"

TEXT = "short"
PACE_S = 0.020

def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def bulk(job, count)
  job.perform_bulk(Array.new(count) { |number| [number, TEXT] })
end

def single(job, count)
  count.times { |number| job.perform_async(number, TEXT) }
end

def paced(job, count)
  due = monotonic
  count.times do
    due += PACE_S
    sleep([0.0, due - monotonic].max)
    job.perform_async(Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond), TEXT)
  end
end

job, count, mode = ARGV
start = monotonic
send(mode, JOBS.fetch(job), Integer(count))
puts monotonic - start
