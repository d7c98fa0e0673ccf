// Package logs carries the output of tasks from their hosts to the user: spool,
// wire format, order, prefix and colour.
//
// On a host a [Writer] keeps the bytes of each task and stream in plain files, with an
// index of times beside each, and drops the oldest ones at a limit. [Serve] reads these
// files and writes chunks to any stream. At the other end a [Reader] reads them. A [Cursor] remembers how
// far each stream was received, so that a new connection continues at that byte.
// A [Printer] assembles lines and prints them with a prefix of task and host, on a
// [Display], which also shows progress. A [Dir] keeps them in files, and a [File] reads on the
// host what a Dir would keep.
//
//	w, err := logs.Create(dir, logs.Source{Task: "worker:3", Stream: logs.Stderr}, 1<<30)
//	...
//	err = logs.Serve(ctx, dir, logs.Request{TailLines: -1, Follow: true}, ended, channel)
//
// and on the launching machine
//
//	p := logs.NewPrinter(logs.NewDisplay(stdout, stderr), logs.Options{Hosts: hosts, Tasks: tasks})
//	defer p.Close()
//	r := logs.NewReader(channel)
//	for {
//		c, err := r.Next()
//		...
//		c, err = cursor.Take("gpu01", c)
//		...
//		err = p.Chunk("gpu01", c)
//	}
//
// The package drops no line of a program below the limit, says in place how many bytes
// were dropped at it, and keeps the order within a stream. In a pipe
// bytes follow the prefix unchanged, but of lines that are redrawn with carriage returns and
// movements of the cursor only the last state is printed. On a terminal the Printer removes control sequences or
// makes them visible. Equal messages of several tasks are printed once, with their
// number, in a live view only (fold.go). Spools, a Dir and JSON keep every byte.
//
// The package knows no process, no SSH and no job: it does not start tasks and
// does not decide when a job has ended. It refuses task names that could leave
// its folder and lengths beyond its bounds. It overwrites no existing log file.
package logs
