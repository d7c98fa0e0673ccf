//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/plx-run/plx/envsync/venv"
	"github.com/plx-run/plx/envsync/venv/install"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// python is "agent python": it reads a venv.Request from its standard input, installs the
// virtual environment if it can, and prints a venv.Answer.
func python(ctx context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("python takes no arguments")
	}
	var want venv.Request
	if err := json.NewDecoder(io.LimitReader(std.in, protocol.MaxMessage)).Decode(&want); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	dir, err := jobfolder.Envs()
	if err != nil {
		return err
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	ready, err := install.Environment(ctx, dir, files, want)
	if err != nil {
		return err
	}
	return json.NewEncoder(std.out).Encode(venv.Answer{Ready: ready})
}
