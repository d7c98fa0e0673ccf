// Package launcher runs one program on many hosts as one job.
//
// It is the only package that knows the order of a launch: connect and
// inspect, probe, place, sync, start agents, conduct, stream, verdict. Each of
// those steps is another package's work, see ARCHITECTURE.md.
//
//	code, err := launcher.Launch(ctx, launcher.Config{
//		Hosts:   hosts,                      // from package hostfile
//		Program: "./train", Args: []string{"--learning-rate", "0.1"},
//		Terminal: launcher.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	})
//
// Jobs that run or ran are reached by [Logs], [Jobs], [Attach], [Stop] and
// [Prune]; [Probe] looks at hosts without starting anything.
//
// The package never falls back in silence: a host that cannot be used ends
// the launch.
package launcher
