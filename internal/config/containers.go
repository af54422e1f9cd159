package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ContainerEngineOff as ContainerEngine keeps the worker from using an engine
// that is there.
const ContainerEngineOff = "off"

func containerSettings() []Setting {
	return []Setting{
		{
			Name: "container_engine", Env: "BELAY_CONTAINER_ENGINE",
			Derived: "the first of DOCKER_HOST, Docker's socket and Podman's that is there",
			Help:    "The socket of the container engine for steps with an image and for services, as unix:///path; off: none.",
			set:     setContainerEngine,
		},
		{
			Name: "container_mounts", Env: "BELAY_CONTAINER_MOUNTS", List: true,
			Help: "Folders of this machine that files may mount into containers, each with all below it, separated by commas.",
			set:  setContainerMounts,
		},
		{
			Name: "container_privileged", Env: "BELAY_CONTAINER_PRIVILEGED", Default: "false",
			Help: "true lets files run privileged containers, which have all of this machine.",
			set:  truth(func(c *Config) *bool { return &c.ContainerPrivileged }),
		},
		{
			Name: "registry_config", Env: "BELAY_REGISTRY_CONFIG", Derived: "config.json in $DOCKER_CONFIG, else in ~/.docker",
			Help: "File with the logins of registries, in the form of docker's config.json, credential helpers included.",
			set:  text(func(c *Config) *string { return &c.RegistryConfig }),
		},
	}
}

func truth(field func(*Config) *bool) func(*Config, value) error {
	return func(c *Config, v value) error {
		if v.text != "true" && v.text != "false" {
			return fmt.Errorf("%q: want true or false", v.text)
		}
		*field(c) = v.text == "true"
		return nil
	}
}

func setContainerEngine(c *Config, v value) error {
	if v.text != "" && v.text != ContainerEngineOff && !isSocket(v.text) {
		return fmt.Errorf("%q: want unix:///path/to/docker.sock, or %s: an engine elsewhere has not the workspaces of this machine", v.text, ContainerEngineOff)
	}
	c.ContainerEngine = v.text
	return nil
}

func isSocket(address string) bool { return strings.HasPrefix(address, "unix:///") }

func setContainerMounts(c *Config, v value) error {
	for _, folder := range v.items() {
		if !filepath.IsAbs(folder) {
			return fmt.Errorf("%q: want an absolute path", folder)
		}
		c.ContainerMounts = append(c.ContainerMounts, filepath.Clean(folder))
	}
	return nil
}

// deriveContainers finds the engine and the logins where none are named.
func (c *Config) deriveContainers(lookup Lookup) {
	home, _ := lookup("HOME")
	if c.RegistryConfig == "" {
		dir, _ := lookup("DOCKER_CONFIG")
		if dir == "" && home != "" {
			dir = filepath.Join(home, ".docker")
		}
		if dir != "" {
			c.RegistryConfig = filepath.Join(dir, "config.json")
		}
	}
	if c.ContainerEngine != "" {
		return
	}
	c.ContainerEngine = ContainerEngineOff
	if host, _ := lookup("DOCKER_HOST"); isSocket(host) {
		c.ContainerEngine = host
		return
	}
	sockets := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir, _ := lookup("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman", "podman.sock"))
	}
	for _, path := range sockets {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			c.ContainerEngine = "unix://" + path
			return
		}
	}
}
