package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// contract returns the contract of worker:3, the second of two workers on its
// host, in a job with two servers.
func contract() Contract {
	return Contract{
		Job: "mlp-1", Generation: 2, Task: Task{Worker, 3}, WorldSize: 4, LocalRank: 1, LocalWorldSize: 2, FirstWorldSize: 6,
		Cluster:  Spec{PS: []string{"10.0.0.1:1", "10.0.0.2:1"}, Worker: []string{"10.0.0.1:2", "10.0.0.1:3", "[fd00::4]:2", "[fd00::4]:3"}},
		ListenFD: 3, ControlFD: 4, SecretFile: "/home/a b/secret", LogLevel: "debug", Dir: "/home/a b/worker_3",
		Checkpoints: "/home/a b/ckpt/mlp",
		Foreign: Foreign{
			MasterAddr: "10.0.0.1", MasterPort: 41000, GroupRank: 1, Interface: "eth0", Visible: []string{"CUDA_VISIBLE_DEVICES=5"}, Threads: 8,
			Groups: 2, Restarts: 1, MaxRestarts: 3, ErrorFile: "/home/a b/error.json",
			Cluster: Spec{PS: []string{"10.0.0.1:11", "10.0.0.2:11"}, Worker: []string{"10.0.0.1:12", "10.0.0.1:13", "[fd00::4]:12", "[fd00::4]:13"}},
		},
	}
}

func variables(t *testing.T, c Contract) map[string]string {
	t.Helper()
	vars := map[string]string{}
	for _, e := range append(c.Environ(), c.Foreign.Defaults()...) {
		name, value, ok := strings.Cut(e, "=")
		if _, twice := vars[name]; !ok || twice {
			t.Errorf("%q is no variable, or is there twice", e)
		}
		vars[name] = value
	}
	return vars
}

func TestWorkerEnvironment(t *testing.T) {
	want := map[string]string{
		"PLX_JOB": "mlp-1", "PLX_GENERATION": "2", "PLX_ROLE": "worker", "PLX_TASK_INDEX": "3",
		"PLX_RANK": "3", "PLX_WORLD_SIZE": "4", "PLX_LOCAL_RANK": "1", "PLX_LOCAL_WORLD_SIZE": "2", "PLX_FIRST_WORLD_SIZE": "6",
		"PLX_CLUSTER":   `{"ps":["10.0.0.1:1","10.0.0.2:1"],"worker":["10.0.0.1:2","10.0.0.1:3","[fd00::4]:2","[fd00::4]:3"]}`,
		"PLX_LISTEN_FD": "3", "PLX_CONTROL_FD": "4", "PLX_SECRET_FILE": "/home/a b/secret", "PLX_LOG_LEVEL": "debug", "PLX_CHECKPOINTS": "/home/a b/ckpt/mlp", "PLX_DIR": "/home/a b/worker_3",
		"CUDA_VISIBLE_DEVICES": "5", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
		"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "41000",
		"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
		"GROUP_WORLD_SIZE": "2", "ROLE_NAME": "default", "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "4",
		"TORCHELASTIC_RUN_ID": "mlp-1", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "3",
		"TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_ERROR_FILE": "/home/a b/error.json",
		"TF_CONFIG":          `{"cluster":{"ps":["10.0.0.1:11","10.0.0.2:11"],"worker":["10.0.0.1:12","10.0.0.1:13","[fd00::4]:12","[fd00::4]:13"]},"task":{"index":3,"type":"worker"}}`,
		"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "8", "PYTHONUNBUFFERED": "1",
	}
	if got := variables(t, contract()); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// NCCL treats an interface name as a prefix, unless it begins with "=".
func TestNCCLInterfaceNameIsExact(t *testing.T) {
	c := contract()
	c.Foreign.Interface, c.Foreign.Prefix = "ib0", true
	got := variables(t, c)
	if got["NCCL_SOCKET_IFNAME"] != "=ib0" || got["GLOO_SOCKET_IFNAME"] != "ib0" {
		t.Errorf("%q, %q", got["NCCL_SOCKET_IFNAME"], got["GLOO_SOCKET_IFNAME"])
	}
}

func TestServerEnvironmentHasNoRank(t *testing.T) {
	c := contract()
	c.Task, c.Foreign.Visible = Task{PS, 1}, []string{"CUDA_VISIBLE_DEVICES="}
	got := variables(t, c)
	for _, name := range []string{
		"PLX_RANK", "PLX_WORLD_SIZE", "PLX_LOCAL_RANK", "PLX_LOCAL_WORLD_SIZE", "PLX_FIRST_WORLD_SIZE",
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
	} {
		if value, set := got[name]; set {
			t.Errorf("%s=%s is set for a server", name, value)
		}
	}
	if devices, set := got["CUDA_VISIBLE_DEVICES"]; !set || devices != "" {
		t.Errorf("CUDA_VISIBLE_DEVICES=%q (set: %v), want it set and empty", devices, set)
	}
	if !strings.HasSuffix(got["TF_CONFIG"], `"task":{"index":1,"type":"ps"}}`) {
		t.Errorf("TF_CONFIG=%s", got["TF_CONFIG"])
	}
}

func TestUnknownValuesAreNotInTheEnvironment(t *testing.T) {
	c := contract()
	c.ListenFD, c.ControlFD, c.Foreign.Interface, c.Foreign.Threads = 0, 0, "", 0
	c.Cluster.PS, c.Foreign.Cluster.PS = nil, nil
	got := variables(t, c)
	for _, name := range []string{"PLX_LISTEN_FD", "PLX_CONTROL_FD", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "OMP_NUM_THREADS"} {
		if value, set := got[name]; set {
			t.Errorf("%s=%s is set", name, value)
		}
	}
	// Even without servers the value must be a list, not null, because
	// programs in other languages count its elements.
	if !strings.HasPrefix(got["PLX_CLUSTER"], `{"ps":[],"worker":[`) {
		t.Errorf("PLX_CLUSTER=%s", got["PLX_CLUSTER"])
	}
	if !strings.HasPrefix(got["TF_CONFIG"], `{"cluster":{"worker":[`) {
		t.Errorf("TF_CONFIG=%s", got["TF_CONFIG"])
	}
}

func TestContractSurvivesTheEnvironment(t *testing.T) {
	chief := contract()
	chief.Task, chief.LocalRank = Chief, 0
	server := contract()
	server.Task, server.WorldSize, server.LocalRank, server.LocalWorldSize, server.FirstWorldSize = Task{PS, 1}, 0, 0, 0, 0
	bare := contract()
	bare.ListenFD, bare.ControlFD, bare.LogLevel, bare.Dir = 0, 0, "", ""
	for name, want := range map[string]Contract{"worker": contract(), "chief": chief, "ps": server, "bare": bare} {
		vars := variables(t, want)
		got, ok, err := FromEnvironment(func(name string) string { return vars[name] })
		if !ok || err != nil {
			t.Errorf("%s: ok %v, %v", name, ok, err)
		}
		want.Foreign = Foreign{} // a task does not read the variables for other launchers
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

// PLX_FIRST_WORLD_SIZE is optional, for launchers that never restart a job
// with another number of workers.
func TestFirstWorldSizeDefaultsToWorldSize(t *testing.T) {
	vars := variables(t, contract())
	delete(vars, "PLX_FIRST_WORLD_SIZE")
	got, _, err := FromEnvironment(func(name string) string { return vars[name] })
	if err != nil || got.FirstWorldSize != 4 {
		t.Errorf("%d workers at first, %v; want 4", got.FirstWorldSize, err)
	}
}

func TestNoContractOutsideOfALauncher(t *testing.T) {
	_, ok, err := FromEnvironment(func(name string) string {
		return map[string]string{"PLX_JOB": "x", "PLX_LOG_LEVEL": "debug"}[name]
	})
	if ok || err != nil {
		t.Errorf("ok %v, %v; want neither", ok, err)
	}
}

func TestFromEnvironmentReportsEveryMistake(t *testing.T) {
	one := map[string][]string{ // by number of the mistake: texts that the error must contain
		"PLX_JOB=":                     {"PLX_JOB is not set"},
		"PLX_SECRET_FILE=":             {"PLX_SECRET_FILE is not set"},
		"PLX_ROLE=chief":               {`PLX_ROLE="chief": want worker or ps`},
		"PLX_GENERATION=-1":            {`PLX_GENERATION="-1": want a number of at least 0`},
		"PLX_TASK_INDEX=":              {`PLX_TASK_INDEX="": want a number of at least 0`},
		"PLX_TASK_INDEX=4":             {"no address for this task, worker:4", "PLX_RANK=3, but PLX_TASK_INDEX=4"},
		"PLX_RANK=":                    {`PLX_RANK="": want a number`},
		"PLX_RANK=2":                   {"PLX_RANK=2, but PLX_TASK_INDEX=3"},
		"PLX_WORLD_SIZE=0":             {`PLX_WORLD_SIZE="0": want a number of at least 1`},
		"PLX_WORLD_SIZE=5":             {"PLX_WORLD_SIZE=5, but PLX_CLUSTER lists 4 workers"},
		"PLX_LOCAL_RANK=x":             {`PLX_LOCAL_RANK="x"`},
		"PLX_LOCAL_RANK=2":             {"PLX_LOCAL_RANK=2, but PLX_LOCAL_WORLD_SIZE=2"},
		"PLX_LOCAL_WORLD_SIZE=5":       {"PLX_LOCAL_WORLD_SIZE=5, but PLX_WORLD_SIZE=4"},
		"PLX_FIRST_WORLD_SIZE=0":       {`PLX_FIRST_WORLD_SIZE="0": want a number of at least 1`},
		"PLX_LISTEN_FD=2":              {`PLX_LISTEN_FD="2": want a number of at least 3`},
		"PLX_CONTROL_FD=three":         {`PLX_CONTROL_FD="three"`},
		"PLX_CLUSTER=":                 {"PLX_CLUSTER: unexpected end"},
		"PLX_CLUSTER={}":               {"no address for this task", "PLX_WORLD_SIZE=4, but PLX_CLUSTER lists 0"},
		`PLX_CLUSTER={"worker":["a:1"`: {"PLX_CLUSTER: unexpected end"},
		`PLX_CLUSTER={"worker":[1]}`:   {"PLX_CLUSTER: json"},
		`PLX_CLUSTER={"worker":["a:1","","c:1","d:1"]}`:              {"PLX_CLUSTER: no address for worker:1"},
		`PLX_CLUSTER={"ps":[""],"worker":["a:1","b:1","c:1","d:1"]}`: {"PLX_CLUSTER: no address for ps:0"},
		"PLX_JOB=|PLX_GENERATION=x|PLX_LISTEN_FD=0":                  {"PLX_JOB", "PLX_GENERATION", "PLX_LISTEN_FD"},
	}
	for change, want := range one {
		vars := variables(t, contract())
		for _, c := range strings.Split(change, "|") {
			name, value, _ := strings.Cut(c, "=")
			vars[name] = value
		}
		_, ok, err := FromEnvironment(func(name string) string { return vars[name] })
		if !ok || err == nil {
			t.Errorf("%s: ok %v, %v; want a contract with an error", change, ok, err)
			continue
		}
		told := strings.Split(err.Error(), "\n")
		for _, w := range want {
			if !slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, w) }) {
				t.Errorf("%s: got %q, want %q in it", change, told, w)
			}
		}
		if len(told) != len(want) {
			t.Errorf("%s: %d mistakes told, want %d: %q", change, len(told), len(want), told)
		}
	}
}

func FuzzFromEnvironment(f *testing.F) {
	f.Add("worker", "3", `{"worker":["a:1"]}`, "3")
	f.Add("ps", "0", `{"ps":["a:1"],"worker":null}`, "")
	f.Fuzz(func(t *testing.T, role, index, spec, fd string) {
		vars := map[string]string{
			"PLX_JOB": "j", "PLX_SECRET_FILE": "s", "PLX_GENERATION": "0", "PLX_ROLE": role, "PLX_TASK_INDEX": index, "PLX_RANK": index,
			"PLX_WORLD_SIZE": "1", "PLX_LOCAL_RANK": "0", "PLX_LOCAL_WORLD_SIZE": "1", "PLX_CLUSTER": spec, "PLX_LISTEN_FD": fd,
		}
		c, ok, err := FromEnvironment(func(name string) string { return vars[name] })
		if ok && err == nil && c.Cluster.Addr(c.Task) == "" {
			t.Errorf("%v: a task without an address passed", vars)
		}
	})
}

func TestSecretFileIsChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	read := func(text string) ([]byte, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Contract{SecretFile: file}.Secret()
	}
	good := strings.Repeat("0f", SecretSize)
	for _, text := range []string{good, good + "\n", " " + good + "\r\n"} {
		if secret, err := read(text); err != nil || len(secret) != SecretSize || secret[0] != 0x0f {
			t.Errorf("%q: %x, %v", text, secret, err)
		}
	}
	for _, text := range []string{"", good[2:], good + "00", "g" + good[1:], good + good} {
		_, err := read(text)
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v; want an error that names the file", text, err)
		}
		if err != nil && len(text) > 8 && strings.Contains(err.Error(), text[:8]) {
			t.Errorf("%q: the error tells the secret: %v", text, err)
		}
	}
	if _, err := (Contract{SecretFile: file + "-none"}).Secret(); err == nil {
		t.Error("a missing file gave a secret")
	}
}
