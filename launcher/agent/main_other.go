//go:build !linux

package agent

import (
	"context"
	"fmt"
	"io"
)

// Main says that hosts must run Linux.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// There is nobody to tell of a standard error that cannot be written.
	fmt.Fprintln(stderr, "plx agent: a host must run Linux, this machine does not")
	return codeFailed
}
