//go:build !linux

package agent

import (
	"context"
	"fmt"
	"io"
)

// Main fails: hosts must run Linux.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fmt.Fprintln(stderr, "plx agent: a host must run Linux, this machine does not") // if that fails, nobody can be told
	return codeFailed
}
