package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"belay.run/internal/config"
	"belay.run/internal/run"
)

const kubernetes = root + "/deploy/kubernetes"

// decode reads a manifest into a type, of which it may say nothing unknown.
func decode[T any](t *testing.T, name string) *T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(kubernetes, name))
	require.NoError(t, err)
	out := new(T)
	require.NoError(t, yaml.UnmarshalStrict(text, out), name)
	return out
}

// kustomization is as much of that format as is used.
type kustomization struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Labels     []struct {
		IncludeSelectors bool              `json:"includeSelectors"`
		Pairs            map[string]string `json:"pairs"`
	} `json:"labels"`
	Resources  []string `json:"resources"`
	Components []string `json:"components"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
	Patches []struct {
		Path   string            `json:"path"`
		Patch  string            `json:"patch"`
		Target map[string]string `json:"target"`
	} `json:"patches"`
	Replacements []struct {
		Source struct {
			Kind      string `json:"kind"`
			Name      string `json:"name"`
			FieldPath string `json:"fieldPath"`
		} `json:"source"`
		Targets []struct {
			Select     map[string]string `json:"select"`
			FieldPaths []string          `json:"fieldPaths"`
		} `json:"targets"`
	} `json:"replacements"`
	SecretGenerator []struct {
		Name string   `json:"name"`
		Envs []string `json:"envs"`
	} `json:"secretGenerator"`
	GeneratorOptions struct {
		DisableNameSuffixHash bool `json:"disableNameSuffixHash"`
	} `json:"generatorOptions"`
}

// TestKustomizations: each names what is there, and nothing lies beside it that no
// kustomization names.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"base", "monitoring", "autoscaling", "shared-store", "example"} {
		k := decode[kustomization](t, dir+"/kustomization.yaml")
		named := []string{"kustomization.yaml"}
		for _, r := range slices.Concat(k.Resources, k.Components) {
			if strings.HasPrefix(r, "../") {
				require.FileExists(t, filepath.Join(kubernetes, dir, r, "kustomization.yaml"))
				continue
			}
			named = append(named, r)
		}
		for _, p := range k.Patches {
			require.NotEqual(t, p.Path == "", p.Patch == "", dir)
			if p.Path != "" {
				named = append(named, p.Path)
			}
		}
		for _, s := range k.SecretGenerator {
			named = append(named, s.Envs...)
		}
		files, err := fs.Glob(os.DirFS(filepath.Join(kubernetes, dir)), "*")
		require.NoError(t, err)
		require.ElementsMatch(t, files, named, dir)
	}
}

// pod is the template of the workers' pods, and of them the only container.
func pod(t *testing.T) (*corev1.PodSpec, *corev1.Container) {
	t.Helper()
	d := decode[appsv1.Deployment](t, "base/deployment.yaml")
	require.Equal(t, "apps/v1/Deployment", d.APIVersion+"/"+d.Kind)
	p := &d.Spec.Template.Spec
	require.Len(t, p.Containers, 1)
	return p, &p.Containers[0]
}

// kubeSettings reads the settings of the workers as they do.
func kubeSettings(t *testing.T, data map[string]string) *config.Config {
	t.Helper()
	known := map[string]bool{}
	for _, s := range config.Settings() {
		known[s.Env] = true
	}
	for name := range data {
		require.True(t, known[name] || name == "TEMPORAL_ADDRESS" || name == "TEMPORAL_NAMESPACE", "%s is no setting", name)
	}
	c, err := config.FromEnvironment(func(name string) (string, bool) {
		v, ok := data[name]
		return v, ok
	})
	require.NoError(t, err)
	return c
}

func TestKubernetesWorker(t *testing.T) {
	t.Parallel()
	p, c := pod(t)
	settings := kubeSettings(t, decode[corev1.ConfigMap](t, "base/configmap.yaml").Data)

	// After the drain come finally steps (5 min) and releases (2 min).
	require.NotNil(t, p.TerminationGracePeriodSeconds)
	require.Greater(t, time.Duration(*p.TerminationGracePeriodSeconds)*time.Second, settings.DrainTimeout+7*time.Minute)

	require.Len(t, c.Ports, 1)
	require.Equal(t, "0.0.0.0:9464", settings.HTTPAddress)
	require.EqualValues(t, 9464, c.Ports[0].ContainerPort)
	require.True(t, settings.HTTPAPIOff, "there are no tokens")
	for path, probe := range map[string][]*corev1.Probe{"/healthz": {c.LivenessProbe, c.StartupProbe}, "/readyz": {c.ReadinessProbe}} {
		for _, p := range probe {
			require.NotNil(t, p)
			require.Equal(t, path, p.HTTPGet.Path)
			require.Equal(t, c.Ports[0].Name, p.HTTPGet.Port.StrVal)
		}
	}

	// It writes to its volumes and nowhere else.
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.MountPath] = m.Name
	}
	require.Contains(t, mounts, settings.StateDir)
	require.Contains(t, mounts, "/tmp")
	for _, name := range mounts {
		require.True(t, slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == name && v.EmptyDir != nil }), name)
	}
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.True(t, *p.SecurityContext.RunAsNonRoot)
	require.Contains(t, read(t, "Dockerfile"), "USER 65532:65532")
	require.EqualValues(t, 65532, *p.SecurityContext.RunAsUser)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, p.SecurityContext.SeccompProfile.Type)
	require.False(t, *p.AutomountServiceAccountToken)
	require.False(t, *decode[corev1.ServiceAccount](t, "base/serviceaccount.yaml").AutomountServiceAccountToken)
}

func TestKubernetesBesideTheWorkers(t *testing.T) {
	t.Parallel()
	_, c := pod(t)
	port := c.Ports[0].Name
	d := decode[appsv1.Deployment](t, "base/deployment.yaml")
	labels := d.Spec.Template.Labels
	require.NotEmpty(t, labels)
	require.Equal(t, labels, d.Spec.Selector.MatchLabels)
	service := decode[corev1.Service](t, "base/service.yaml")
	require.Equal(t, labels, service.Spec.Selector)
	require.Equal(t, port, service.Spec.Ports[0].TargetPort.StrVal)
	budget := decode[policyv1.PodDisruptionBudget](t, "base/poddisruptionbudget.yaml")
	require.Equal(t, labels, budget.Spec.Selector.MatchLabels, "without one it would protect nobody")
	require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
	policy := decode[networkingv1.NetworkPolicy](t, "base/networkpolicy.yaml")
	require.Equal(t, labels, policy.Spec.PodSelector.MatchLabels, "without one it would be about all pods of the namespace")
	require.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
	require.Len(t, policy.Spec.Ingress, 1)
	require.Equal(t, port, policy.Spec.Ingress[0].Ports[0].Port.StrVal)
	require.Contains(t, policy.Spec.Egress[0].To[0].IPBlock.Except, "169.254.0.0/16", "the metadata of a cloud")
	decode[corev1.Namespace](t, "example/namespace.yaml")
}

func TestKubernetesSharedStore(t *testing.T) {
	t.Parallel()
	claim := decode[corev1.PersistentVolumeClaim](t, "shared-store/persistentvolumeclaim.yaml")
	require.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, claim.Spec.AccessModes)
	patch := decode[appsv1.Deployment](t, "shared-store/deployment.yaml")
	c := patch.Spec.Template.Spec.Containers[0]
	_, base := pod(t)
	require.Equal(t, base.Name, c.Name, "it is merged into that container")
	require.Equal(t, claim.Name, patch.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	settings := decode[corev1.ConfigMap](t, "shared-store/configmap.yaml")
	require.Equal(t, "file://"+c.VolumeMounts[0].MountPath, settings.Data["BELAY_STORE"])
}

// serviceMonitor and scaledObject are as much of these as is used.
type serviceMonitor struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Selector  map[string]map[string]string `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			ScrapeTimeout string `json:"scrapeTimeout"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type scaledObject struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		ScaleTargetRef  map[string]string `json:"scaleTargetRef"`
		MinReplicaCount int               `json:"minReplicaCount"`
		MaxReplicaCount int               `json:"maxReplicaCount"`
		PollingInterval int               `json:"pollingInterval"`
		Advanced        map[string]any    `json:"advanced"`
		Triggers        []struct {
			Type     string `json:"type"`
			Metadata struct {
				Endpoint        string `json:"endpoint"`
				Namespace       string `json:"namespace"`
				TaskQueue       string `json:"taskQueue"`
				QueueTypes      string `json:"queueTypes"`
				TargetQueueSize string `json:"targetQueueSize"`
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

func TestKubernetesComponents(t *testing.T) {
	t.Parallel()
	labels := decode[corev1.Service](t, "base/service.yaml").Labels
	monitor := decode[serviceMonitor](t, "monitoring/servicemonitor.yaml")
	require.Equal(t, "monitoring.coreos.com/v1", monitor.APIVersion)
	for name, value := range monitor.Spec.Selector["matchLabels"] {
		require.Equal(t, value, labels[name])
	}
	require.Equal(t, "/metrics", monitor.Spec.Endpoints[0].Path)
	require.Equal(t, decode[corev1.Service](t, "base/service.yaml").Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)

	scaled := decode[scaledObject](t, "autoscaling/scaledobject.yaml")
	require.Equal(t, decode[appsv1.Deployment](t, "base/deployment.yaml").Name, scaled.Spec.ScaleTargetRef["name"])
	require.Positive(t, scaled.Spec.MinReplicaCount, "the janitor is to run at any time")
	require.Greater(t, scaled.Spec.MaxReplicaCount, scaled.Spec.MinReplicaCount)
	settings := decode[corev1.ConfigMap](t, "base/configmap.yaml").Data
	queues := map[string]string{run.StepsQueue(""): "activity", run.QueueWorkflows: "workflow"}
	require.Len(t, scaled.Spec.Triggers, len(queues))
	for _, trigger := range scaled.Spec.Triggers {
		require.Equal(t, "temporal", trigger.Type)
		require.Equal(t, queues[trigger.Metadata.TaskQueue], trigger.Metadata.QueueTypes, trigger.Metadata.TaskQueue)
		require.Equal(t, settings["TEMPORAL_ADDRESS"], trigger.Metadata.Endpoint)
		require.Equal(t, settings["TEMPORAL_NAMESPACE"], trigger.Metadata.Namespace)
	}
}
