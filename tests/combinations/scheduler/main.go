// Binds pods as kube-scheduler does, in one process and without an API server.
//
// Reads one cluster a line from standard input and writes one verdict a line. The filters are those of kube-scheduler's
// default profile. A cluster that cannot be read gets a verdict with an error; its neighbours go on.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// cluster is one line of input. Pods have been admitted: their priorities are numbers.
type cluster struct {
	Nodes         []*v1.Node                    `json:"nodes"`         // nodes that exist, and those of the plan as launched
	Bound         []*v1.Pod                     `json:"bound"`         // pods that run, those of DaemonSets included
	Pods          []*v1.Pod                     `json:"pods"`          // pods of the plan, nominated for their planned node
	Orders        [][]int                       `json:"orders"`        // in which pods arrive: indexes of Pods
	LeftOut       []*v1.Pod                     `json:"leftOut"`       // pods without a node in the plan
	Chances       []chance                      `json:"chances"`       // nodes that could have been launched for them
	Namespaces    []*v1.Namespace               `json:"namespaces"`    // every namespace of a pod
	DefaultSpread []v1.TopologySpreadConstraint `json:"defaultSpread"` // for pods of ReplicaSets that have none
	ReplicaSets   []*appsv1.ReplicaSet          `json:"replicaSets"`
	Claims        []*v1.PersistentVolumeClaim   `json:"claims"`
	Volumes       []*v1.PersistentVolume        `json:"volumes"`
	Classes       []*storagev1.StorageClass     `json:"classes"`
	CSINodes      []*storagev1.CSINode          `json:"csiNodes"`
}

// chance is a node that NodePools can launch, with the pods that DaemonSets start on it. It is open if limits allow it.
type chance struct {
	Node  *v1.Node  `json:"node"`
	Bound []*v1.Pod `json:"bound"`
	Open  bool      `json:"open"`
}

// verdict is one line of output.
type verdict struct {
	Unbound []unbound `json:"unbound"`
	Fitting []fitting `json:"fitting"`
	Error   string    `json:"error,omitempty"`
}

// unbound is a pod of the plan that no node took in an order.
type unbound struct {
	Order  int               `json:"order"`
	Pod    string            `json:"pod"`
	Reason string            `json:"reason"`
	Homes  map[string]string `json:"homes"` // the node of each pod that was bound
}

// fitting is a pod that was left out although a chance takes it.
type fitting struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

const (
	syncPause = 200 * time.Microsecond
	// Informers tell a plugin's cache of a change a little later than their own store shows it.
	hearsayPause = 20 * time.Millisecond
	syncTimeout  = 10 * time.Second

	// The caches of volumes take an object only if its version is newer than theirs.
	asWritten, asBound = "1", "2"
)

func main() {
	klog.SetLogger(klog.Logger{})
	metrics.Register()
	profile, err := defaultProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if encodeErr := out.Encode(judge(profile, line)); encodeErr != nil {
				fmt.Fprintln(os.Stderr, encodeErr)
				os.Exit(1)
			}
		}
		if err != nil {
			return
		}
	}
}

// defaultProfile returns the profile of a kube-scheduler without configuration, without the plugin of ResourceClaims:
// Shiplap plans no pod that has any.
func defaultProfile() (*config.KubeSchedulerProfile, error) {
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	internal := config.KubeSchedulerConfiguration{}
	if err := scheme.Scheme.Convert(&versioned, &internal, nil); err != nil {
		return nil, err
	}
	profile := internal.Profiles[0]
	enabled := profile.Plugins.MultiPoint.Enabled[:0]
	for _, plugin := range profile.Plugins.MultiPoint.Enabled {
		if plugin.Name != names.DynamicResources && plugin.Name != names.DefaultPreemption {
			enabled = append(enabled, plugin)
		}
	}
	profile.Plugins.MultiPoint.Enabled = enabled
	return &profile, nil
}

// spreading returns the profile with default constraints of a configuration, if there are any.
func spreading(profile *config.KubeSchedulerProfile, constraints []v1.TopologySpreadConstraint) *config.KubeSchedulerProfile {
	if len(constraints) == 0 {
		return profile
	}
	made := profile.DeepCopy()
	for place := range made.PluginConfig {
		if made.PluginConfig[place].Name == names.PodTopologySpread {
			made.PluginConfig[place].Args = &config.PodTopologySpreadArgs{
				DefaultConstraints: constraints, DefaultingType: config.ListDefaulting,
			}
		}
	}
	return made
}

func judge(profile *config.KubeSchedulerProfile, line []byte) (found verdict) {
	found = verdict{Unbound: []unbound{}, Fitting: []fitting{}}
	// A plugin that panics on an odd object must not end the judgement of other clusters.
	defer func() {
		if problem := recover(); problem != nil {
			found.Error = fmt.Sprint(problem)
		}
	}()
	var given cluster
	if err := json.Unmarshal(line, &given); err != nil {
		found.Error = err.Error()
		return found
	}
	profile = spreading(profile, given.DefaultSpread)
	for number, order := range given.Orders {
		left, err := bindAll(profile, &given, order, int64(number))
		if err != nil {
			found.Error = err.Error()
			return found
		}
		for _, pod := range left {
			pod.Order = number
			found.Unbound = append(found.Unbound, pod)
		}
	}
	fits, err := chances(profile, &given)
	if err != nil {
		found.Error = err.Error()
	}
	found.Fitting = append(found.Fitting, fits...)
	return found
}

// bindAll binds the pods in an order, and those that fail again as long as anything changes; it returns the others.
//
// A pod that no node takes loses its nomination, as DefaultPreemption decides where it finds no victim. That matters:
// nominated pods count on their own node alone, so those of a spread keep each other off until some have lost theirs.
func bindAll(profile *config.KubeSchedulerProfile, given *cluster, order []int, seed int64) ([]unbound, error) {
	world, err := newWorld(profile, given)
	if err != nil {
		return nil, err
	}
	defer world.stop()
	pods := make([]*v1.Pod, len(given.Pods))
	for place, pod := range given.Pods {
		pods[place] = pod.DeepCopy()
		if err := world.nominated.add(pods[place]); err != nil {
			return nil, err
		}
	}
	draw := rand.New(rand.NewSource(seed))
	homes := map[string]string{}
	for waiting, patient := order, len(given.Claims) > 0; len(waiting) > 0; {
		var left []unbound
		var failed []int
		changed := false
		for _, place := range waiting {
			pod := pods[place]
			home, reason := world.bind(pod, draw)
			if home != "" {
				homes[key(pod)] = home
				changed = true
				continue
			}
			changed = world.nominated.drop(pod) || changed
			failed = append(failed, place)
			left = append(left, unbound{Pod: key(pod), Reason: reason, Homes: homes})
		}
		waiting = failed
		if !changed && patient {
			// The caches of volumes may not have heard of everything yet.
			patient = false
			time.Sleep(hearsayPause)
		} else if !changed {
			return left, nil
		}
	}
	return nil, nil
}

// chances returns the pods left out that a chance takes once all pods of the plan are where it puts them.
func chances(profile *config.KubeSchedulerProfile, given *cluster) ([]fitting, error) {
	var found []fitting
	if len(given.LeftOut) == 0 {
		return nil, nil
	}
	world, err := newWorld(profile, given)
	if err != nil {
		return nil, err
	}
	defer world.stop()
	nodes := map[string]*v1.Node{}
	for _, node := range given.Nodes {
		nodes[node.Name] = node
	}
	for _, pod := range given.Pods {
		placed := pod.DeepCopy()
		placed.Spec.NodeName = pod.Status.NominatedNodeName
		if err := world.cache.AddPod(world.logger, placed); err != nil {
			return nil, err
		}
		// Their volumes have been made, and keep the pods left out to their zones.
		if err := world.provision(placed, nodes[placed.Spec.NodeName]); err != nil {
			return nil, err
		}
	}
	// Every chance is there at once: each zone that a NodePool can launch into is a domain of spread constraints.
	for _, chance := range given.Chances {
		world.cache.AddNode(world.logger, chance.Node)
		for _, pod := range chance.Bound {
			if err := world.cache.AddPod(world.logger, pod); err != nil {
				return nil, err
			}
		}
	}
	open := map[string]bool{}
	for _, chance := range given.Chances {
		open[chance.Node.Name] = chance.Open
	}
	for _, pod := range given.LeftOut {
		feasible, _ := world.feasible(pod, framework.NewCycleState())
		for _, node := range feasible {
			if open[node.Node().Name] {
				found = append(found, fitting{Pod: key(pod), Node: node.Node().Name})
			}
		}
	}
	return found, nil
}

// world is a cluster as kube-scheduler sees it while it binds pods.
type world struct {
	ctx       context.Context
	stop      context.CancelFunc
	logger    klog.Logger
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	cache     cache.Cache
	snapshot  *cache.Snapshot
	framework framework.Framework
	nominated nominations
	claims    map[string]*v1.PersistentVolumeClaim
	classes   map[string]*storagev1.StorageClass
}

func newWorld(profile *config.KubeSchedulerProfile, given *cluster) (*world, error) {
	ctx, stop := context.WithCancel(context.Background())
	made := &world{
		ctx: ctx, stop: stop, logger: klog.FromContext(ctx), nominated: nominations{}, snapshot: cache.NewEmptySnapshot(),
		claims: map[string]*v1.PersistentVolumeClaim{}, classes: map[string]*storagev1.StorageClass{},
	}
	made.client = fake.NewSimpleClientset(made.objects(given)...)
	made.informers = informers.NewSharedInformerFactory(made.client, 0)
	made.cache = cache.New(ctx, nil, false)
	built, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(made.client),
		frameworkruntime.WithInformerFactory(made.informers),
		frameworkruntime.WithSnapshotSharedLister(made.snapshot),
		frameworkruntime.WithPodNominator(made.nominated),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(made.informers.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Hour, ctx.Done())),
		frameworkruntime.WithParallelism(1),
		frameworkruntime.WithLogger(made.logger),
	)
	if err != nil {
		stop()
		return nil, err
	}
	made.framework = built
	made.informers.Start(ctx.Done())
	if err := made.synced(given); err != nil {
		stop()
		return nil, err
	}
	for _, node := range given.Nodes {
		made.cache.AddNode(made.logger, node)
	}
	for _, pod := range given.Bound {
		if err := made.cache.AddPod(made.logger, pod); err != nil {
			stop()
			return nil, err
		}
	}
	return made, nil
}

// objects returns what plugins read through informers. Nodes and pods come from the scheduler's own cache.
func (w *world) objects(given *cluster) []runtime.Object {
	var objects []runtime.Object
	for _, item := range given.Namespaces {
		objects = append(objects, item)
	}
	for _, item := range given.ReplicaSets {
		objects = append(objects, item)
	}
	for _, item := range given.Claims {
		claim := item.DeepCopy()
		claim.ResourceVersion = asWritten
		w.claims[item.Namespace+"/"+item.Name] = claim
		objects = append(objects, claim.DeepCopy())
	}
	for _, item := range given.Volumes {
		volume := item.DeepCopy()
		volume.ResourceVersion = asWritten
		objects = append(objects, volume)
	}
	for _, item := range given.Classes {
		w.classes[item.Name] = item
		objects = append(objects, item)
	}
	for _, item := range given.CSINodes {
		objects = append(objects, item)
	}
	return objects
}

// synced waits until the informers' stores hold every object. WaitForCacheSync would look ten times a second.
func (w *world) synced(given *cluster) error {
	core, storage := w.informers.Core().V1(), w.informers.Storage().V1()
	checks := []func() bool{
		core.Namespaces().Informer().HasSynced, core.PersistentVolumeClaims().Informer().HasSynced,
		core.PersistentVolumes().Informer().HasSynced, storage.StorageClasses().Informer().HasSynced,
		storage.CSINodes().Informer().HasSynced, storage.CSIDrivers().Informer().HasSynced,
		storage.CSIStorageCapacities().Informer().HasSynced, core.Services().Informer().HasSynced,
		w.informers.Apps().V1().ReplicaSets().Informer().HasSynced,
	}
	for _, check := range checks {
		if err := eventually(check); err != nil {
			return err
		}
	}
	return nil
}

func eventually(check func() bool) error {
	for deadline := time.Now().Add(syncTimeout); !check(); time.Sleep(syncPause) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the informers did not hear of an object within %s", syncTimeout)
		}
	}
	return nil
}

// feasible returns the nodes that pass all filters, the nominated node alone if it does, or the reason why there are none.
func (w *world) feasible(pod *v1.Pod, state fwk.CycleState) ([]fwk.NodeInfo, string) {
	if err := w.cache.UpdateSnapshot(w.logger, w.snapshot); err != nil {
		return nil, err.Error()
	}
	all, err := w.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err.Error()
	}
	chosen, status, _ := w.framework.RunPreFilterPlugins(w.ctx, state, pod)
	if !status.IsSuccess() {
		return nil, status.Message()
	}
	reasons := map[string]int{}
	var passed []fwk.NodeInfo
	for _, node := range all {
		if !chosen.AllNodes() && !chosen.NodeNames.Has(node.Node().Name) {
			reasons["not a node of the prefilter"]++
			continue
		}
		status := w.framework.RunFilterPluginsWithNominatedPods(w.ctx, state, pod, node)
		if status.IsSuccess() {
			if node.Node().Name == pod.Status.NominatedNodeName {
				return []fwk.NodeInfo{node}, ""
			}
			passed = append(passed, node)
		} else {
			reasons[status.Message()]++
		}
	}
	text, _ := json.Marshal(reasons)
	return passed, string(text)
}

// bind chooses among the feasible nodes of best score by draw, and binds the pod; it returns the node, or the reason.
func (w *world) bind(pod *v1.Pod, draw *rand.Rand) (string, string) {
	state := framework.NewCycleState()
	passed, reason := w.feasible(pod, state)
	if len(passed) == 0 {
		return "", reason
	}
	home := passed[0]
	if len(passed) > 1 {
		if status := w.framework.RunPreScorePlugins(w.ctx, state, pod, passed); !status.IsSuccess() {
			return "", status.Message()
		}
		scores, status := w.framework.RunScorePlugins(w.ctx, state, pod, passed)
		if !status.IsSuccess() {
			return "", status.Message()
		}
		home = passed[best(scores, draw)]
	}
	name := home.Node().Name
	if status := w.framework.RunReservePluginsReserve(w.ctx, state, pod, name); !status.IsSuccess() {
		return "", status.Message()
	}
	w.nominated.DeleteNominatedPodIfExists(pod)
	pod.Spec.NodeName = name
	if err := w.cache.AddPod(w.logger, pod); err != nil {
		return "", err.Error()
	}
	if err := w.provision(pod, home.Node()); err != nil {
		return "", err.Error()
	}
	return name, ""
}

func best(scores []fwk.NodePluginScores, draw *rand.Rand) int {
	var places []int
	for place, score := range scores {
		if len(places) > 0 && score.TotalScore > scores[places[0]].TotalScore {
			places = nil
		}
		if len(places) == 0 || score.TotalScore == scores[places[0]].TotalScore {
			places = append(places, place)
		}
	}
	return places[draw.Intn(len(places))]
}

// provision makes the volumes of claims that waited for the pod's node, as a CSI provisioner does: in the node's zone.
func (w *world) provision(pod *v1.Pod, node *v1.Node) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := w.claims[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName]
		if claim == nil || claim.Spec.VolumeName != "" {
			continue
		}
		if err := w.provisionClaim(claim, node); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) provisionClaim(claim *v1.PersistentVolumeClaim, node *v1.Node) error {
	class := w.classes[*claim.Spec.StorageClassName]
	zone := v1.NodeSelectorRequirement{
		Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{node.Labels[v1.LabelTopologyZone]},
	}
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "made-" + claim.Namespace + "-" + claim.Name, ResourceVersion: asWritten},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:      claim.Spec.AccessModes,
			Capacity:         claim.Spec.Resources.Requests,
			StorageClassName: class.Name,
			ClaimRef:         &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: class.Provisioner, VolumeHandle: claim.Name},
			},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{zone}}},
			}},
		},
	}
	if _, err := w.client.CoreV1().PersistentVolumes().Create(w.ctx, volume, metav1.CreateOptions{}); err != nil {
		return err
	}
	claim.ResourceVersion = asBound
	claim.Spec.VolumeName = volume.Name
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	claim.Status.Phase = v1.ClaimBound
	if _, err := w.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(w.ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	listed := w.informers.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(claim.Namespace)
	err := eventually(func() bool {
		seen, err := listed.Get(claim.Name)
		return err == nil && seen.Spec.VolumeName != ""
	})
	time.Sleep(hearsayPause)
	return err
}

// nominations holds the pods nominated for each node, as kube-scheduler's queue does.
type nominations map[string][]fwk.PodInfo

func (n nominations) add(pod *v1.Pod) error {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	n[pod.Status.NominatedNodeName] = append(n[pod.Status.NominatedNodeName], info)
	return nil
}

// drop takes a pod's nomination back; it returns whether there was one.
func (n nominations) drop(pod *v1.Pod) bool {
	n.DeleteNominatedPodIfExists(pod)
	had := pod.Status.NominatedNodeName != ""
	pod.Status.NominatedNodeName = ""
	return had
}

func (n nominations) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}

func (n nominations) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo) {}

func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo { return n[node] }

func (n nominations) DeleteNominatedPodIfExists(pod *v1.Pod) {
	var kept []fwk.PodInfo
	for _, info := range n[pod.Status.NominatedNodeName] {
		if key(info.GetPod()) != key(pod) {
			kept = append(kept, info)
		}
	}
	n[pod.Status.NominatedNodeName] = kept
}

func key(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
