// Package timeline records what a task did and when. It writes a file for a
// trace viewer: chrome://tracing, or Perfetto at ui.perfetto.dev.
//
//	r := timeline.New(1 << 20)
//	for step := uint64(0); step < 100; step++ {
//		r.Record(profiled.Contains(step)) // profiled, _ := timeline.ParseSteps("10:12")
//		start := time.Now()
//		compute()
//		r.Span("replica 0", "forward", start, time.Now(), "step", step)
//	}
//	err := r.Save("worker-0.trace.json", timeline.Process{Name: "worker:0", Host: "gpu01"})
//
// A recorder takes spans and instants from any goroutine. It has a limit of
// events, and counts those that it drops. It does not measure or sample by
// itself. It does not compare the clocks of several hosts: time 0 of a file is its
// earliest event.
package timeline
