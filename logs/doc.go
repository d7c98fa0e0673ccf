// Package logs carries the output of tasks from their hosts to the user. A
// task is one process of a job, such as worker:3.
//
// On a host, a [Writer] stores the output of each task and stream in plain
// files, the spool, with an index of times beside each file. At a size limit
// it drops the oldest bytes. [Serve] reads the spools and writes chunks of
// them to a connection. On the user's machine, a [Reader] decodes the chunks.
// A [Cursor] remembers how many bytes of each stream arrived, so that a new
// connection continues at the next byte. A [Printer] assembles lines and
// prints them after a prefix with task and host, on a [Display], which also
// shows progress. A [Dir] writes the output to local files. A [File] reads on
// the host the same bytes that a Dir would write.
//
//	w, err := logs.Create(dir, logs.Source{Task: "worker:3", Stream: logs.Stderr}, 1<<30)
//	...
//	err = logs.Serve(ctx, dir, logs.Request{TailLines: -1, Follow: true}, ended, channel)
//
// On the launching machine:
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
// Below the size limit, the package loses no line that a program prints. Where
// the limit has dropped bytes, the output has a line with their number. The
// order within a stream is kept. If the output is a pipe, a Printer writes the
// program's bytes unchanged after the prefix. For lines that a program redraws
// with carriage returns and cursor movements, it prints only the last state.
// On a terminal, a Printer removes control sequences or makes them visible. In
// a live view, it prints equal messages of several tasks once, with the number
// of tasks (fold.go). Spools, a Dir and JSON output keep every byte.
//
// The package starts no tasks, does not use SSH and does not decide when a job
// has ended. It rejects task names that could lead to paths outside its
// folder, and lengths above its limits. It never overwrites an existing log
// file.
package logs
