package gpuprobe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Use is the current utilisation of a GPU.
type Use struct {
	GPU                 // contains only the fields that UseScript queries; its Processes have no User
	Temperature int     // temperature in degrees Celsius; Unknown if the tool does not report it
	Power       float64 // power in watts; Unknown if the tool does not report it
}

// ID returns the GPU's UUID, or its PCI bus address if it has no UUID.
func (u Use) ID() string { return cmp.Or(u.UUID, u.PCIBusID) }

// NoTool is the exit status of UseScript if the host has no GPU tool.
const NoTool = 127

// UseScript returns a shell script that prints the utilisation of each GPU of
// a host, as ParseUse expects. It runs faster than the script of Probe,
// because it queries only values that change. It looks for the tools in the
// same folders as probe.sh, the script of Probe.
func UseScript() string {
	var there, commands []string
	for _, f := range vendors() {
		tool, _, _ := strings.Cut(f.use, " ")
		there = append(there, "command -v "+tool+" >/dev/null")
		commands = append(commands, f.use)
	}
	return "PATH=$PATH:/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/bin:/run/nvidia/driver/usr/bin:/usr/lib/wsl/lib:/opt/rocm/bin:/run/current-system/sw/bin\n" +
		strings.Join(there, " || ") + " || exit " + strconv.Itoa(NoTool) + "\n" +
		strings.Join(append(commands, "exit 1"), " ||\n") + "\n"
}

// ParseUse parses the output of UseScript and returns the GPUs in index order.
// Only one vendor's tool has printed the output.
func ParseUse(text string) []Use {
	for _, f := range vendors() {
		if all := f.parseUse(text); len(all) > 0 {
			slices.SortStableFunc(all, func(a, b Use) int { return cmp.Compare(a.Index, b.Index) })
			return all
		}
	}
	return nil
}

// parseNVIDIAUse parses nvidia-smi's output for UseScript. Each line for a GPU
// has "TEMPERATURE, POWER, " before the fields that parseGPU parses. The lines
// for processes follow, which parseProcess parses.
func parseNVIDIAUse(text string) (all []Use) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "GPU-") || strings.HasPrefix(line, "MIG-") {
			uuid, p, ok := parseProcess(line)
			if i := slices.IndexFunc(all, func(u Use) bool { return u.owns(uuid) }); ok && i >= 0 {
				all[i].add(uuid, p)
			}
			continue
		}
		fields := strings.SplitN(line, ",", 3)
		if len(fields) != 3 || len(all) > maxIndex {
			continue
		}
		if g, ok := parseGPU(fields[2], 0); ok {
			all = append(all, Use{g, amount(clean(fields[0])), watts(clean(fields[1]))})
		}
	}
	return all
}

// parseROCmUse parses the JSON output of rocm-smi. Models of GPUs have
// different temperature sensors with different names, so it takes the highest
// temperature.
func parseROCmUse(text string) (all []Use) {
	lines := strings.Split(text, "\n")
	gpus, _ := readROCmSMI(sections{{name: "rocm", lines: lines}})
	whole, _ := decoded(lines).(map[string]any)
	for _, g := range gpus {
		u := Use{g, Unknown, Unknown}
		fields, _ := whole["card"+strconv.Itoa(g.Index)].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			switch value := object(fields).text(key); {
			case strings.HasPrefix(key, "Temperature (Sensor "):
				u.Temperature = max(u.Temperature, int(watts(value)))
			case strings.HasSuffix(key, "Package Power (W)") && u.Power == Unknown:
				u.Power = watts(value)
			}
		}
		all = append(all, u)
	}
	return all
}

// watts parses a decimal number. It returns Unknown for any other text.
func watts(field string) float64 {
	n, err := strconv.ParseFloat(field, 64)
	if err != nil || !(n >= 0 && n < 1<<20) {
		return Unknown
	}
	return n
}
