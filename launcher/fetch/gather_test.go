package fetch

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// lists parses one list per text, as a host would send it. Each line is a
// checkpoint: its folder, its files and the checksum of its manifest. A "+"
// marks a file that the host has. A folder can have a time.
func lists(texts ...string) (all [][]protocol.HostCheckpoint) {
	for _, text := range texts {
		var list []protocol.HostCheckpoint
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			folder, second, _ := strings.Cut(words[0], "@")
			k := protocol.HostCheckpoint{Folder: folder}
			if n, err := strconv.Atoi(second); err == nil {
				k.Made = time.Unix(int64(n), 0)
			}
			if words[1] == "damaged" {
				k.Damage = "its sum is wrong"
				list = append(list, k)
				continue
			}
			for _, w := range words[1 : len(words)-1] {
				name, here := strings.CutSuffix(w, "+")
				k.Files = append(k.Files, protocol.CheckpointFile{Name: name, Here: here})
			}
			k.Files = append(k.Files, protocol.CheckpointFile{Name: "manifest.json", Sum: words[len(words)-1], Here: true})
			list = append(list, k)
		}
		all = append(all, list)
	}
	return all
}

// shown formats each checkpoint as a line: the hosts that have each file, or
// what is missing.
func shown(all []checkpoint) string {
	var lines []string
	for _, c := range all {
		line := c.folder + ":"
		for _, f := range c.files {
			if c.missing == "" {
				var hosts []int
				for _, o := range f.from {
					hosts = append(hosts, o.host)
				}
				line += fmt.Sprintf(" %s%v", path.Base(f.to[0]), hosts)
			}
		}
		if c.missing != "" {
			line += " " + c.missing
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestGather(t *testing.T) {
	for name, c := range map[string]struct {
		hosts []string
		want  string
	}{
		"nothing": {[]string{"", ""}, ""},
		"files of all hosts, each once": {
			[]string{"a p+ w sum", "a p+ w+ sum", ""},
			"a: p[0 1] w[1] manifest.json[0 1]",
		},
		"the newest first, by number": {
			[]string{"000000000009-g0-aa p+ s\n000000000010-g2-aa p+ s\n000000000010-g10-aa p+ s\n1000000000000-g0-aa p+ s"},
			"1000000000000-g0-aa: p[0] manifest.json[0]\n000000000010-g10-aa: p[0] manifest.json[0]\n" +
				"000000000010-g2-aa: p[0] manifest.json[0]\n000000000009-g0-aa: p[0] manifest.json[0]",
		},
		"the latest of one step": {
			[]string{"000000000010-g2-aa@3 p+ s\n000000000010-g0-bb@7 p+ s\n000000000010-g2-cc@5 p+ s\n000000000010-g3-dd@5 p+ s"},
			"000000000010-g0-bb: p[0] manifest.json[0]\n000000000010-g3-dd: p[0] manifest.json[0]\n" +
				"000000000010-g2-cc: p[0] manifest.json[0]\n000000000010-g2-aa: p[0] manifest.json[0]",
		},
		"folder by folder": {
			[]string{"big/000000000001-g0-aa p+ s\nsmall/000000000002-g0-aa p+ s\nbig/000000000003-g0-aa p+ s"},
			"big/000000000003-g0-aa: p[0] manifest.json[0]\nbig/000000000001-g0-aa: p[0] manifest.json[0]\nsmall/000000000002-g0-aa: p[0] manifest.json[0]",
		},
		"a file that no host has": {
			[]string{"a p+ w x sum", "a p+ w x sum"},
			"a: no host that was reached has w, x",
		},
		"one manifest damaged": {
			[]string{"a damaged", "a p+ sum"},
			"a: p[1] manifest.json[1]",
		},
		"all manifests damaged": {
			[]string{"a damaged", "a damaged"},
			"a: its manifest is unreadable: its sum is wrong",
		},
		"the complete one of two manifests": {
			[]string{"a p sum1", "a p sum1", "a p+ sum2"},
			"a: p[2] manifest.json[2]",
		},
		"the manifest of most hosts": {
			[]string{"a p+ sum1", "a p+ sum2", "a p+ sum2"},
			"a: p[1 2] manifest.json[1 2]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(gather(lists(c.hosts...))); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// No path that a host lists can lead out of the local folder.
func FuzzDecodeKept(f *testing.F) {
	f.Add([]byte(`{"folder":"a/b","files":[{"name":"ps-0.safetensors","size":1,"sum":"x","here":true}]}` + "\n"))
	f.Add([]byte(`{"folder":"../x"}`))
	f.Add([]byte(`{"folder":"a","files":[{"name":"../../.ssh/authorized_keys"}]}`))
	f.Add([]byte(`{"folder":".ssh/a"}`))
	f.Add([]byte(`{"folder":"a\u001b[2J"}{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list []protocol.HostCheckpoint
		decoder := listOf(&list)
		_, err := decoder.Write(text)
		if errors.Join(err, decoder.end()) != nil {
			return
		}
		for _, k := range list {
			for _, part := range strings.Split(k.Folder, "/") {
				if strings.HasPrefix(k.Folder, ".") || part == "" || part == "." || part == ".." {
					t.Errorf("folder %q", k.Folder)
				}
			}
			for _, file := range k.Files {
				if strings.ContainsAny(file.Name, "/\\\x00") || file.Name == ".." || file.Name == "." || file.Name == "" {
					t.Errorf("file %q", file.Name)
				}
			}
		}
		shown(gather([][]protocol.HostCheckpoint{list, list}))
	})
}
