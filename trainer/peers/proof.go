package peers

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
)

const maxPurpose = 32 // bytes

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

// prove is the acceptor's side of a proof. It returns the dialler's proved name and the
// purpose in that; the dialler means this task for the purpose.
func prove(ctx context.Context, conn net.Conn, c Config) (proved, purpose string, err error) {
	proved, err = cluster.Accept(ctx, conn, c.Key, func(dialler string) string { return name(c.Self, purposeOf(dialler)) })
	return proved, purposeOf(proved), err
}

// purposeOf returns the purpose in the name that a dialler gives itself.
func purposeOf(name string) string {
	_, purpose, _ := strings.Cut(name, "/")
	return purpose
}
