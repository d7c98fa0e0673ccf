//go:build long

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/protocol"
)

// misuses lists wrong command lines. right is a corrected line, and the hint
// must contain the flag, command or value that it adds. The corrected line
// exits with 0, or fails with the text in then.
var misuses = []struct{ wrong, right, then string }{
	{"lunch --dry-run ./train", "launch --dry-run ./train", ""},
	{"frobnicate", "help", ""},
	{"torchrun --nproc_per_node 2 train.py", "help launch", ""},
	{"run --dry-run ./train", "launch --dry-run ./train", ""},
	{"ps", "jobs", ""},
	{"ls", "jobs", ""},
	{"list", "jobs", ""},
	{"kill none", "stop none", "job none"},
	{"cancel none", "stop none", "job none"},
	{"help lgos", "help logs", ""},
	{"--hosts resources.txt launch --dry-run ./train", "launch --hosts resources.txt --dry-run ./train", ""},
	{"--zzz", "help", ""},

	{"launch --dry-run", "launch --dry-run ./train", ""},
	{"launch --leese 30s --dry-run ./train", "launch --lease 30s --dry-run ./train", ""},
	{"launch --zzz", "help launch", ""},
	{"launch --dry-run --gpu 1 ./train", "launch --dry-run --host 'gpu01: 0,1' ./train", ""},
	{"launch --dry-run --worker 2 ./train", "launch --dry-run -n 2 ./train", ""},
	{"launch --dry-run --num_workers 2 ./train", "launch --dry-run -n 2 ./train", ""},
	{"logs --worker 3 none", "logs --rank 3 none", "job none"},
	{"launch --dry-run ./train --hosts resources.txt", "launch --dry-run --hosts resources.txt ./train", ""},
	{"launch --dry-run ./train --host=h1", "launch --dry-run --host h1 ./train", ""},
	{"launch --dry-run --host h1 --ps h9 ./train", "launch --dry-run --host h1 --ps h1 ./train", ""},
	{"launch --dry-run --lease", "launch --dry-run --lease 30s ./train", ""},
	{"launch --dry-run --lease soon ./train", "launch --dry-run --lease 90s ./train", ""},
	{"launch --dry-run --lease 60 ./train", "launch --dry-run --lease 60s ./train", ""},
	{"launch --dry-run --lease 1s ./train", "launch --dry-run --lease 5s ./train", ""},
	{"launch --dry-run --lease -5s ./train", "launch --dry-run --lease 5s ./train", ""},
	{"launch --dry-run --max-restarts x ./train", "launch --dry-run --max-restarts 3 ./train", ""},
	{"launch --dry-run --rank x ./train", "launch --dry-run --rank 3 ./train", "no task worker:3"},
	{"launch --dry-run --detach=x ./train", "launch --dry-run --detach ./train", ""},
	{"launch --dry-run --freeze-timeout 1s ./train", "launch --dry-run --freeze-timeout 4s ./train", ""},
	{"launch --dry-run --freeze-timeout 1s ./train", "launch --dry-run --freeze-timeout 0 ./train", ""},
	{"launch --dry-run -n -1 ./train", "launch --dry-run -n 0 ./train", ""},
	{"launch --dry-run --workers-per-host 99999999999 ./train", "launch --dry-run --workers-per-host 2 ./train", ""},
	{"launch --dry-run --log-limit 1KiB ./train", "launch --dry-run --log-limit 1MiB ./train", ""},
	{"launch --dry-run --metric loss=LOSS ./train", "launch --dry-run --metric 'loss=LOSS ([0-9.]+)' ./train", ""},
	{"launch --dry-run --log-limit much ./train", "launch --dry-run --log-limit 1GiB ./train", ""},
	{"launch --dry-run --max-time -1s ./train", "launch --dry-run --max-time 0 ./train", ""},
	{"launch --dry-run --local 2 ./train", "launch --dry-run --local 2x1 ./train", ""},
	{"launch --dry-run --host h1 --local 2x1 ./train", "launch --dry-run --host h1 ./train", ""},
	{"launch --dry-run --share-gpus --wait-gpus 1m ./train", "launch --dry-run --share-gpus ./train", ""},
	{"launch --dry-run --port-range 99 ./train", "launch --dry-run --port-range 20000-20100 ./train", ""},
	{"launch --dry-run --nic a/b ./train", "launch --dry-run --nic NAME ./train", ""},
	{"launch --dry-run --color red ./train", "launch --dry-run --color auto ./train", ""},
	{"launch --dry-run --visible all ./train", "launch --dry-run --visible auto ./train", ""},
	{"launch --dry-run --grep '(' ./train", `launch --dry-run --grep \( ./train`, ""},
	{"launch --dry-run --name 'my job' ./train", "launch --dry-run --name my-job ./train", ""},
	{"launch --dry-run --name '' ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run --name '..' ./train", "launch --dry-run --name my-job ./train", ""},
	{"launch --dry-run --workdir '' ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run --workdir none ./train", "launch --dry-run --workdir . ./train", ""},
	{"launch --dry-run --workdir .. ./train", "launch --dry-run --workdir . ./train", ""},
	{"launch --dry-run --workdir . --chdir /tmp ./train", "launch --dry-run --workdir . ./train", ""},
	{"launch --dry-run --workdir . --setup 'echo $RANK' ./train", "launch --dry-run --workdir . sh -c 'echo $RANK; exec ./train'", ""},
	{"launch --dry-run --venv none ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run --check-import 'a b' ./train", "launch --dry-run --check-import torch,numpy ./train", ""},
	{"launch --dry-run --copy '' ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run --copy none ./train", "launch --dry-run --copy FILE ./train", ""},
	{"launch --dry-run --copy /dev/null ./train", "launch --dry-run --copy FILE ./train", ""},
	{"launch --dry-run --resume ../x ./train", "jobs", ""},
	{"launch --dry-run --output /a ./train", "launch --dry-run --output *.pt ./train", ""},
	{"launch --dry-run --env A-B=1 ./train", "launch --dry-run --env A_B=1 ./train", ""},
	{"launch --dry-run --env NO_SUCH_VALUE ./train", "launch --dry-run --env NO_SUCH_VALUE=VALUE ./train", ""},
	{"launch --dry-run --env RANK=1 ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run --env-file none ./train", "launch --dry-run --env A=1 ./train", ""},
	{"launch --dry-run --host 'h1 RANK=1' ./train", "launch --dry-run --host h1 ./train", ""},
	{"launch --dry-run --detach --fetch d ./train", "launch --dry-run --detach ./train", ""},
	{"launch --dry-run --detach --grep x ./train", "launch --dry-run --detach ./train", ""},
	{"launch --dry-run --min-workers 3 ./train", "launch --dry-run --min-workers 2 ./train", ""},
	{"launch --dry-run --task worker:2 ./train", "launch --dry-run --task worker:1 ./train", ""},
	{"launch --dry-run --task [ ./train", "launch --dry-run --task worker:* ./train", ""},
	{"launch --dry-run train", "launch --dry-run ./train", ""},
	{"launch --dry-run train.py", "launch --dry-run --workdir . python3 train.py", ""},
	{"launch --dry-run ./train.py", "launch --dry-run --workdir . python3 train.py", ""},
	{"launch --dry-run python3 train.py", "launch --dry-run --workdir . python3 train.py", ""},
	{"launch --dry-run --workdir sub python3 train.py", "launch --dry-run --workdir . python3 train.py", ""},
	{"launch --dry-run --workdir sub python3 train.py", "launch --dry-run --workdir sub --copy train.py python3 train.py", ""},

	{"launch --dry-run --hosts '' ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run --hosts none.txt ./train", "launch --dry-run --host LINE ./train", ""},
	{"launch --dry-run --hosts train.py --host h1 ./train", "launch --dry-run --host h1 ./train", ""},
	{"launch --dry-run --host 'h1: 0,,1' ./train", "launch --dry-run --host 'gpu01: 0,1' ./train", ""},
	{"launch --dry-run --host h1 --host h1 ./train", "launch --dry-run --host h1 ./train", ""},
	{"launch --dry-run --host 'h1: ps' ./train", "launch --dry-run --host 'gpu01: 0,1' ./train", ""},
	{"launch --dry-run --host h1 --ps h2 ./train", "launch --dry-run --host h1 --ps h1 ./train", ""},
	{"launch --dry-run --include gpu01 ./train", "launch --dry-run --include gpu01 --host gpu01 ./train", ""},
	{"launch --dry-run --host gpu01 --exclude gpu01 ./train", "launch --dry-run --host gpu01 --exclude gpu01:0,1 ./train", ""},

	{"launch --dry-run --host h1 --nproc_per_node 2 ./train", "launch --dry-run --host h1 --workers-per-host 2 ./train", ""},
	{"launch --dry-run --nnodes 2 ./train", "launch --dry-run --hosts resources.txt ./train", ""},
	{"launch --dry-run --standalone ./train", "launch --dry-run --local 1x2 ./train", ""},
	{"launch --dry-run --master_port 29500 ./train", "launch --dry-run ./train", ""},
	{"launch --dry-run -m package", "launch --dry-run python3 -m package", ""},
	{"launch --dry-run -np 2 ./train", "launch --dry-run -n 2 ./train", ""},
	{"launch --dry-run -H h1:2,h2:2 ./train", "launch --dry-run --host h1 --host h2 ./train", ""},
	{"launch --dry-run --hostfile resources.txt ./train", "launch --dry-run --hosts resources.txt ./train", ""},
	{"launch --dry-run -x A=1 ./train", "launch --dry-run --env A=1 ./train", ""},
	{"launch --dry-run --host h1 --nproc 2 ./train", "launch --dry-run --host h1 --workers-per-host 2 ./train", ""},
	{"launch --dry-run --host h1 --num_gpus 2 ./train", "launch --dry-run --host h1 --workers-per-host 2 ./train", ""},
	{"launch --dry-run --num_processes 2 ./train", "launch --dry-run -n 2 ./train", ""},
	{"launch --dry-run -p 2222 ./train", "launch --dry-run --host 'gpu01:2222: 0,1' ./train", ""},
	{"launch --dry-run --host h1 --ntasks-per-node=2 ./train", "launch --dry-run --host h1 --workers-per-host 2 ./train", ""},
	{"launch --dry-run --hosts resources.txt --nodelist h1 ./train", "launch --dry-run --hosts resources.txt --include h1 ./train", ""},
	{"exec --hostfile resources.txt --env-file none true", "exec --hosts resources.txt --env-file none true", "--env-file none"},

	{"exec --env-file none --host h1", "exec --env-file none --host h1 -- uname -r", "--env-file none"},
	{"exec --env-file none true", "exec --env-file none --host h1 true", "--env-file none"},
	{"exec --env-file none --host h1 --lease 1s true", "exec --env-file none --host h1 --lease 5s true", "--env-file none"},
	{"exec --env-file none --host h1 --json --stream true", "exec --env-file none --host h1 --stream true", "--env-file none"},
	{"exec --env-file none --host h1 --grace -1s true", "exec --env-file none --host h1 --grace 0s true", "--env-file none"},
	{"exec --env-file none --host h1 --max-time -1s true", "exec --env-file none --host h1 --max-time 10m true", "--env-file none"},

	{"logs a b", "logs a", "job a"},
	{"logs ''", "jobs", ""},
	{"logs none", "jobs", ""},
	{"logs none --exclude (", `logs none --exclude \(`, "job none"},
	{"logs none --include h1", "logs none --exclude h1", "job none"}, // report l1
	{"logs none --since -10m", "logs none --since 10m", "job none"},
	{"attach --taks worker:0 none", "attach --task worker:0 none", "job none"},
	{"logs 2026", "jobs", ""},
	{"stop", "jobs", ""},
	{"stop none --checkpoint-timeout 5m", "stop none --checkpoint --checkpoint-timeout 5m", "job none"},
	{"scale 20261122-2", "scale 20261122-2 --hosts resources.txt", "embedded"},
	{"scale 20261122-2 --hosts resources.txt --checkpoint-timeout 0", "scale 20261122-2 --hosts resources.txt --checkpoint-timeout 5m", "embedded"},
	{"fetch none", "fetch none DIR", "job none"},
	{"jobs x", "jobs", ""},
	{"probe resources.txt --exclude x", "probe --hosts resources.txt --exclude x", "unknown host x"},
	{"prune x", "prune", ""},
	{"prune --all --older 1h", "prune --older 1h", ""},
	{"completion", "completion bash", ""},
	{"man", "man DIR", ""},
	{"config x", "config", ""},
}

// Each command line that plx refuses with status 2 or 126 gets a hint, and
// following the hint removes one mistake.
func TestHintsFixMistakes(t *testing.T) {
	misuseHome(t)
	for _, m := range misuses {
		wrong, right := words(m.wrong), words(m.right)
		code, _, stderr := ran(t, wrong...)
		text, hint, _ := strings.Cut(strings.TrimSpace(stderr), "\nplx: hint: ")
		if code != 2 && code != 126 || hint == "" || strings.Contains(hint, "\n") {
			t.Errorf("plx %s: %d, %q; want status 2 and one line of a hint", m.wrong, code, stderr)
			continue
		}
		for _, word := range right {
			if !slices.Contains(wrong, word) && !advised(hint, word) {
				t.Errorf("plx %s: the hint %q does not lead to %q", m.wrong, hint, word)
			}
		}
		code, _, stderr = ran(t, right...)
		if strings.Contains(stderr, text) || code != 0 && m.then == "" || !strings.Contains(stderr, m.then) {
			t.Errorf("plx %s, after the hint for plx %s: %d, %q; want %q", m.right, m.wrong, code, stderr, m.then)
		}
	}
}

// placeholder matches a word that stands for a value in a hint.
var placeholder = regexp.MustCompile(`\b[A-Z][A-Z=-]*\b`)

// advised reports whether hint contains word: a flag literally, and a value
// perhaps as a placeholder in capitals, such as N.
func advised(hint, word string) bool {
	if strings.HasPrefix(word, "-") && word != "--" || slices.Contains(commandNames((&command{}).app()), word) {
		return strings.Contains(hint, word)
	}
	return strings.Contains(hint, word) || placeholder.MatchString(hint) || value.MatchString(word)
}

// value matches words that only the user can know: a host, a file, a number or
// a time.
var value = regexp.MustCompile(`^(h\d|0|30s|A(_B)?=1|\./train|--)$`)

// misuseHome creates a home with a job record, and in it the working directory
// of the test.
func misuseHome(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	for _, job := range []string{"20261122-1", "20261122-2"} {
		r := jobs.Record{Job: job, Program: "train", Created: time.Now(), Embedded: true, Hosts: []jobs.HostRecord{{Line: "h1"}}}
		if err := errors.Join(r.Save(), r.Finish(protocol.Verdict{})); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(home, "work")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, text := range map[string]string{"train": "#!/bin/sh\n", "train.py": "print(1)\n", "FILE": "", "resources.txt": "h1: 0,1\nh2: 0,1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// words splits a command line as a shell would; it supports only single
// quotes.
func words(line string) (all []string) {
	for _, word := range regexp.MustCompile(`[^ ']*'[^']*'|[^ ]+`).FindAllString(line, -1) {
		all = append(all, strings.ReplaceAll(word, "'", ""))
	}
	return all
}
