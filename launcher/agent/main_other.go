//go:build !linux

package agent

import (
	"context"
	"fmt"
	"io"
)

// Main prints an error: agents run on Linux only.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fmt.Fprintln(stderr, "plx agent: a host must run Linux, this machine does not") // a failed write to standard error cannot be reported anywhere
	return codeFailed
}
