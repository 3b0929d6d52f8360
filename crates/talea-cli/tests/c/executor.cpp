// Threads as ROS 2 programs create them: with explicit attributes of pthread_create, and as
// std::thread with pthread_setschedparam on the native handle.
//
// Each thread prints its result and what it reads back from the kernel and from the C library.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <vector>

static std::mutex output;

static void report(const char *name, int result)
{
	sched_param kernel{}, library{};
	int policy = 0;

	const int in_force = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
	sched_getparam(0, &kernel);
	pthread_getschedparam(pthread_self(), &policy, &library);
	const std::lock_guard<std::mutex> guard(output);
	std::printf("%s = %d; policy %d, priority %d; library %d, %d\n", name, result, in_force,
		    kernel.sched_priority, policy, library.sched_priority);
}

static void *explicit_thread(void *name)
{
	report(static_cast<const char *>(name), 0);
	return nullptr;
}

// Returns the result of pthread_create.
static int create_explicit(const char *name, int policy, int priority)
{
	pthread_attr_t attributes;
	sched_param param{};
	pthread_t thread;

	param.sched_priority = priority;
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, policy);
	pthread_attr_setschedparam(&attributes, &param);
	const int result =
		pthread_create(&thread, &attributes, explicit_thread, const_cast<char *>(name));
	pthread_attr_destroy(&attributes);
	if (result == 0)
		pthread_join(thread, nullptr);
	else
		std::printf("%s = %d (%s)\n", name, result, std::strerror(result));
	return result;
}

int main()
{
	create_explicit("control", SCHED_FIFO, 80);
	create_explicit("logger", SCHED_RR, 20);
	std::vector<std::thread> threads;
	for (const char *name : { "camera", "lidar", "planner" })
		threads.emplace_back([name] {
			sched_param param{};
			param.sched_priority = 50;
			report(name, pthread_setschedparam(pthread_self(), SCHED_FIFO, &param));
			// A thread without attributes of its own, from a real-time thread.
			std::thread([name] { report("inherited", 0); }).join();
		});
	for (std::thread &thread : threads)
		thread.join();
	return 0;
}
