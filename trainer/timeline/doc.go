// Package timeline records what a task did when, and writes it as a file that
// a trace viewer opens: chrome://tracing, or Perfetto at ui.perfetto.dev.
//
//	r := timeline.New(1 << 20)
//	for step := uint64(0); step < 100; step++ {
//		r.Record(profiled.Contains(step)) // profiled, _ := timeline.ParseSteps("10:12")
//		start := time.Now()
//		compute()
//		r.Span("lane 0", "forward", start, time.Now(), "step", step)
//	}
//	err := r.Save("worker-0.trace.json", timeline.Process{Name: "worker:0", Host: "gpu01"})
//
// A recorder takes spans and instants from any goroutine. It holds no more
// events than it was made for and counts those that it had to drop. It does
// not measure by itself, does not sample, and does not bring the clocks of
// several hosts together: whoever knows their difference gives every process
// its Clock.
package timeline
