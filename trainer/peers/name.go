package peers

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

const (
	proofTime  = 10 * time.Second // for a whole proof
	maxPurpose = 32               // bytes
	maxName    = 255              // bytes
	greeting   = "plx-peer-1\n"   // before the dialler's name in package cluster's protocol
)

// name is what a task of the job is called in a proof.
func name(t cluster.Task, purpose string) string { return t.String() + "/" + purpose }

func checkPurpose(purpose string) error {
	if purpose == "" || len(purpose) > maxPurpose || strings.Trim(purpose, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return fmt.Errorf("purpose %q: want 1 to %d small letters", purpose, maxPurpose)
	}
	return nil
}

// admit returns the task of a proved name that came for purpose.
func (c Config) admit(proved, purpose string) (cluster.Task, error) {
	if err := checkPurpose(purpose); err != nil {
		return cluster.Task{}, err
	}
	text, _ := strings.CutSuffix(proved, "/"+purpose)
	task, err := cluster.ParseTask(text)
	if err != nil || !c.has(task) {
		return cluster.Task{}, fmt.Errorf("%q is no task of this job", text)
	}
	return task, nil
}

// prove is the acceptor's side of a proof, bounded by ctx and in time. What it
// returns is proved: the dialler's whole name and that it means this task for
// the purpose.
func prove(ctx context.Context, conn net.Conn, c Config) (proved, purpose string, err error) {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	said, purpose, err := overhear(ctx, conn)
	if err != nil {
		return "", "", err
	}
	proved, err = cluster.Accept(ctx, &replayed{conn, said}, c.Key, name(c.Self, purpose))
	return proved, purpose, err
}

// overhear reads as far as the dialler's name, which is not proved yet, and
// returns the bytes and the purpose in them: the acceptor must know what it is
// called this time before the proof begins.
func overhear(ctx context.Context, conn net.Conn) (said []byte, purpose string, err error) {
	deadline, _ := ctx.Deadline()
	conn.SetReadDeadline(deadline) // a closed conn fails below
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said = make([]byte, len(greeting)+1, len(greeting)+1+maxName)
	if _, err := io.ReadFull(conn, said); err != nil {
		return nil, "", err
	}
	if string(said[:len(greeting)]) != greeting {
		return nil, "", cluster.ErrProof
	}
	begin := len(said)
	said = said[:begin+int(said[begin-1])]
	if _, err := io.ReadFull(conn, said[begin:]); err != nil {
		return nil, "", err
	}
	_, purpose, _ = strings.Cut(string(said[begin:]), "/")
	return said, purpose, nil
}

// replayed is a connection of which said was read already.
type replayed struct {
	net.Conn
	said []byte
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.said) > 0 {
		n := copy(b, r.said)
		r.said = r.said[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}
