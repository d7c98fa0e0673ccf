package launcher

import (
	"os"
	"strings"
	"testing"
)

// Programs that run Python see the GPUs of their host.
func TestIsPython(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"run.sh": "#!/bin/sh\nset -e\nexec python3 -u train.py\n", "other.sh": "#!/bin/sh\n./python-free --no-python x.pyc\n",
		"tool": "#!/usr/bin/env python3\n", "binary": "\x7fELF python3 ",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]bool{
		"python3 -m x": true, "/usr/bin/python3.11 x": true, "pypy3": true, "./train.py": true, "pythonic": false,
		"./tool": true, "./run.sh": true, "./other.sh": false, "./binary": false, "missing": false, "./missing": false,
		"bash run.sh a": true, "sh -e other.sh": false, "sh missing.sh": false,
		"bash -c 'exec python3 a --local_rank=$LOCAL_RANK'": true, "sh -c env": false, "env python3": false,
	} {
		words := strings.Fields(command)
		if got := isPython(words[0], words[1:]); got != want {
			t.Errorf("%s: %v, want %v", command, got, want)
		}
	}
}
