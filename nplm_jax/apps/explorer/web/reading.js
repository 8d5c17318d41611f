// Shows the text once for each model, with words coloured by surprisal. A click emits `choose` with the word's position.
export default {
  props: { rows: Array },
  emits: ["choose"],
  template: `
    <div class="reading">
      <template v-for="row in rows">
        <div class="perplexity">
          <div class="font-medium">{{ row.name }}</div>
          <div class="quiet text-sm">{{ row.perplexity }}</div>
        </div>
        <div class="text">
          <div v-if="row.skipped" class="quiet">{{ row.skipped }}</div>
          <button v-for="word in row.words" type="button" :class="['plain surprise', word.classes]"
            :style="{ '--bits': word.bits }" @click="$emit('choose', word.position)">
            <div>{{ word.text }}</div>
            <q-tooltip>{{ word.tip }}</q-tooltip>
          </button>
        </div>
      </template>
    </div>
  `,
};
