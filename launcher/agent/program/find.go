//go:build linux

package program

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// findTime is how long Find may take to read a program. It is short, because
// the launch waits for the result.
const findTime = 10 * time.Second

// nowhere is a path below which no file can exist. Find uses it for the task's
// working folder, which does not exist yet.
const nowhere = "/dev/null"

// Find searches for a program in the PATH that tasks will have, and checks
// whether the file contains plx's trainer package. A program that Find cannot
// read counts as missing; when a task fails to start it, the task's error
// gives the reason. A program in a relative folder of PATH also counts as
// missing, because the working folder does not exist yet.
func Find(ctx context.Context, login []string, want protocol.Find) (found protocol.Found) {
	path, _ := Lookup(CommandEnvironment(login, want.Env, string(want.Path), nowhere), "PATH")
	file, err := find(string(want.Name), path, nowhere)
	if err != nil {
		return found
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() { // reading a named pipe could block for ever
		return found
	}
	f, err := os.Open(file)
	if err != nil {
		return found
	}
	defer f.Close() // the file was only read
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	found.Trainer, err = cluster.Marked(limited{ctx, f})
	found.There = err == nil
	return found
}

// limited is a Reader that returns an error after its context has ended.
type limited struct {
	ctx context.Context
	io.Reader
}

func (l limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.Reader.Read(p)
}
