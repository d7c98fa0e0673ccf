// Package logs carries what tasks print from their hosts to the user: spool,
// wire, order, prefix, colour.
//
// On a host a [Writer] keeps the bytes of each task and stream in a plain file
// with an index of times beside it. [Serve] reads these files and writes them
// as chunks onto any stream; a [Reader] takes them off at the other end. A
// [Cursor] remembers how far each stream was received, so that after a lost
// connection it goes on at that byte. A [Printer] assembles lines and writes
// them with a prefix that names task and host; a [Dir] keeps them in files.
//
//	w, err := logs.Create(dir, logs.Source{Task: "worker:3", Stream: logs.Stderr})
//	...
//	err = logs.Serve(ctx, dir, logs.Request{TailLines: -1, Follow: true}, ended, channel)
//
// and on the launching machine
//
//	p := logs.NewPrinter(os.Stdout, os.Stderr, logs.Options{Hosts: hosts, Tasks: tasks})
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
// Bytes are never dropped, reordered within a stream or compared with what was
// printed before. In a pipe they pass unchanged behind the prefix; on a
// terminal whatever could steer the terminal is taken out or made visible.
//
// The package knows no process, no SSH and no job: it neither starts tasks nor
// decides when a job has ended. It refuses task names that could leave its
// folder, lengths beyond its bounds, and to overwrite a log file that exists.
package logs
