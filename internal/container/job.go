package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// ClientName is the first argument by which an executable knows that it is to
// hold a container; the second is the file of the [Job].
const ClientName = "belay-container"

// Margin is what a client needs beyond a step's grace period to end and remove
// its container.
const Margin = 10 * time.Second

// Job is the container of one command.
type Job struct {
	Engine string `json:"engine"`
	Name   string `json:"name"`
	Image  Image  `json:"image"`
	// Login is how to log in to the image's registry, as the engine wants it.
	Login string `json:"login,omitempty"`

	Argv       []string          `json:"argv"`
	Env        []string          `json:"env"`
	Dir        string            `json:"dir"`
	User       string            `json:"user,omitempty"`
	Labels     map[string]string `json:"labels"`
	Mounts     []Mount           `json:"mounts"`
	Network    string            `json:"network,omitempty"`
	Privileged bool              `json:"privileged,omitempty"`
	Limits     Limits            `json:"limits"`

	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration `json:"grace"`
	// Report is a file that is written where there is more to say about the end
	// than an exit code.
	Report string `json:"report"`
}

// Image names an image and says when it is fetched.
type Image struct {
	Name string `json:"name"`
	Pull string `json:"pull"`
}

// When an image is fetched.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// Limits are what a container may use; 0 is no limit.
type Limits struct {
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory,omitempty"`
	PIDs   int64   `json:"pids,omitempty"`
}

// Mount is a folder of the host in a container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Command writes the job into a file, which only this user can read since it
// holds the secrets of the step, and returns the command line of its client.
func (j Job) Command(file string) ([]string, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("writing down the container: %w", err)
	}
	self, err := executable()
	if err != nil {
		return nil, fmt.Errorf("finding the own executable: %w", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("writing down the container: %w", err)
	}
	return []string{self, ClientName, file}, nil
}

// executable is this program, also where its file has been replaced since.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// takeJob reads a job and removes its file: what is in it is needed no longer.
func takeJob(file string) (Job, error) {
	var j Job
	text, err := os.ReadFile(file)
	if err != nil {
		return j, err
	}
	if err := os.Remove(file); err != nil {
		return j, err
	}
	return j, json.Unmarshal(text, &j)
}

// Fault is why a container did not end by itself.
type Fault string

// The faults.
const (
	// FaultUnavailable: the engine, or the registry, could not be reached.
	FaultUnavailable Fault = "unavailable"
	// FaultInvalid: the file asks for what cannot be.
	FaultInvalid Fault = "invalid"
	// FaultMemory: it was over its limit of memory.
	FaultMemory Fault = "memory"
)

// Report is what a client has to say about the end of its container.
type Report struct {
	Fault   Fault    `json:"fault,omitempty"`
	Message string   `json:"message,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// ReadReport reads and removes the report of a client that has ended. One that
// was killed has written none.
func ReadReport(file string) (Report, error) {
	var r Report
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err = errors.Join(err, os.Remove(file)); err != nil {
		return r, fmt.Errorf("reading how a container ended: %w", err)
	}
	return r, nil
}

func (r Report) write(file string) error {
	if r.Fault == "" && len(r.Notes) == 0 {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Whole or not at all: the client may be killed at any time.
	half := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	return errors.Join(os.WriteFile(half, text, 0o600), os.Rename(half, file))
}
