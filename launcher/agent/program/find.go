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

// findTime bounds how long Find reads a program: the launch waits for the answer.
const findTime = 10 * time.Second

// nowhere is a folder that does not exist.
const nowhere = "/dev/null"

// Find looks a program up on the PATH that tasks will have, as Resolve does, and for plx's
// trainer in it. A program that it cannot read counts as missing: the tasks say what is wrong.
// So does one in a relative folder, which lies in a working folder that is still to be made.
func Find(ctx context.Context, login []string, want protocol.Find) (found protocol.Found) {
	path, _ := Lookup(Plain(login, want.Env, string(want.Path), nowhere), "PATH")
	file, err := find(string(want.Name), path, nowhere)
	if err != nil {
		return found
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() { // a pipe may have no end
		return found
	}
	f, err := os.Open(file)
	if err != nil {
		return found
	}
	defer f.Close() // only read
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	found.Trainer, err = cluster.Marked(limited{ctx, f})
	found.There = err == nil
	return found
}

// limited is a Reader that fails once its context has ended.
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
